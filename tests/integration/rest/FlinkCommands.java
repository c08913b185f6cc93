import java.util.Arrays;
import java.util.Scanner;
import org.apache.flink.client.cli.CliFrontend;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.configuration.GlobalConfiguration;

/**
 * Flink's command line, one command after the other in one process: a line of the standard input, its words with tabs
 * between them, is what stands behind {@code flink}. After what a command prints stands a line with a zero byte and its
 * exit code.
 *
 * <p>Argument: the folder of Flink's configuration.
 */
public class FlinkCommands {
    public static void main(String[] arguments) throws Exception {
        Configuration configuration = GlobalConfiguration.loadConfiguration(arguments[0]);
        CliFrontend frontend =
                new CliFrontend(
                        configuration, CliFrontend.loadCustomCommandLines(configuration, arguments[0]));
        Scanner commands = new Scanner(System.in);
        while (commands.hasNextLine()) {
            int code = frontend.parseAndRun(commands.nextLine().split("\t"));
            System.err.flush();
            System.out.println("\n\0" + code);
            System.out.flush();
        }
    }
}
