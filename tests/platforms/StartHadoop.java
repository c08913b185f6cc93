import java.io.File;
import java.io.FileOutputStream;
import java.io.OutputStream;
import java.util.List;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.permission.FsPermission;
import org.apache.hadoop.hdfs.MiniDFSCluster;
import org.apache.hadoop.yarn.conf.YarnConfiguration;
import org.apache.hadoop.yarn.server.MiniYARNCluster;

/**
 * HDFS (a NameNode and a DataNode) and YARN (a ResourceManager and a NodeManager) in one JVM, on free ports:
 * StartHadoop FOLDER. The configuration of clients is written to FOLDER/conf, for HADOOP_CONF_DIR. Prints READY when
 * both answer, and runs until it is killed.
 */
public class StartHadoop {
    private static final FsPermission EVERYBODYS = new FsPermission((short) 0777);

    public static void main(String[] arguments) throws Exception {
        File folder = new File(arguments[0]).getAbsoluteFile();
        MiniDFSCluster hdfs = startHdfs(folder);
        FileSystem files = hdfs.getFileSystem();
        for (String directory : List.of("/tmp", "/user", "/user/" + System.getProperty("user.name"))) {
            files.mkdirs(new Path(directory));
            files.setPermission(new Path(directory), EVERYBODYS);
        }
        MiniYARNCluster yarn = startYarn(hdfs);
        Configuration core = new Configuration(false);
        core.set("fs.defaultFS", files.getUri().toString());
        write(folder, "core-site.xml", core);
        Configuration client = new Configuration(false);
        client.set("dfs.namenode.http-address", "localhost:" + hdfs.getNameNode().getHttpAddress().getPort());
        client.set("dfs.replication", "1");
        client.set("dfs.client.use.datanode.hostname", "false");
        write(folder, "hdfs-site.xml", client);
        Configuration manager = new Configuration(false);
        for (String key : List.of(
                "yarn.resourcemanager.address",
                "yarn.resourcemanager.scheduler.address",
                "yarn.resourcemanager.resource-tracker.address",
                "yarn.resourcemanager.webapp.address",
                "yarn.resourcemanager.am.max-attempts")) {
            manager.set(key, yarn.getConfig().get(key));
        }
        write(folder, "yarn-site.xml", manager);
        System.out.println("READY");
        System.out.flush();
        Thread.currentThread().join();
    }

    private static MiniDFSCluster startHdfs(File folder) throws Exception {
        Configuration settings = new Configuration();
        settings.set(MiniDFSCluster.HDFS_MINIDFS_BASEDIR, new File(folder, "hdfs").getPath());
        settings.set("dfs.webhdfs.enabled", "true");
        settings.set("dfs.namenode.fs-limits.min-block-size", "0");
        MiniDFSCluster hdfs = new MiniDFSCluster.Builder(settings).numDataNodes(1).format(true).build();
        hdfs.waitActive();
        return hdfs;
    }

    private static MiniYARNCluster startYarn(MiniDFSCluster hdfs) throws Exception {
        YarnConfiguration settings = new YarnConfiguration(hdfs.getConfiguration(0));
        settings.set("fs.defaultFS", hdfs.getFileSystem().getUri().toString());
        settings.set("yarn.resourcemanager.scheduler.class",
            "org.apache.hadoop.yarn.server.resourcemanager.scheduler.capacity.CapacityScheduler");
        settings.set("yarn.scheduler.capacity.root.queues", "default");
        settings.set("yarn.scheduler.capacity.root.default.capacity", "100");
        // a driver in cluster mode is an application master
        settings.set("yarn.scheduler.capacity.maximum-am-resource-percent", "0.8");
        settings.setInt("yarn.scheduler.minimum-allocation-mb", 128);
        settings.setInt("yarn.nodemanager.resource.memory-mb", 8192);
        settings.setInt("yarn.nodemanager.resource.cpu-vcores", 8);
        settings.setBoolean("yarn.nodemanager.vmem-check-enabled", false);
        settings.setBoolean("yarn.nodemanager.pmem-check-enabled", false);
        settings.setBoolean("yarn.log-aggregation-enable", false);
        // the logs of containers stay for the messages of failed tests
        settings.setInt("yarn.nodemanager.delete.debug-delay-sec", 36000);
        settings.setBoolean("yarn.nodemanager.disk-health-checker.enable", false);
        settings.setInt("yarn.resourcemanager.am.max-attempts", 2);
        MiniYARNCluster yarn = new MiniYARNCluster("flinkish", 1, 1, 1);
        yarn.init(settings);
        yarn.start();
        if (!yarn.waitForNodeManagersToConnect(60_000)) {
            throw new IllegalStateException("the NodeManager has not registered at the ResourceManager within 60 s");
        }
        return yarn;
    }

    private static void write(File folder, String name, Configuration content) throws Exception {
        File conf = new File(folder, "conf");
        conf.mkdirs();
        try (OutputStream out = new FileOutputStream(new File(conf, name))) {
            content.writeXml(out);
        }
    }
}
