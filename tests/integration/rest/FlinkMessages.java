import java.lang.reflect.Constructor;
import java.lang.reflect.Modifier;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import java.util.TreeMap;
import java.util.jar.JarEntry;
import java.util.jar.JarFile;
import org.apache.flink.runtime.rest.HttpMethodWrapper;
import org.apache.flink.runtime.rest.messages.MessageHeaders;
import org.apache.flink.runtime.rest.util.RestMapperUtils;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.ObjectMapper;

/**
 * Reads answers with the classes by which Flink's own client reads them, strictly, and writes them again.
 *
 * <p>Arguments: the jar with Flink's REST messages; a file with lines "route TAB file". Beside each file that could be
 * read stands then one with ".again" at its end, otherwise one with ".error". Prints the routes of Flink's GETs.
 */
public class FlinkMessages {
    public static void main(String[] arguments) throws Exception {
        Map<String, Class<?>> responses = responses(arguments[0]);
        responses.keySet().forEach(System.out::println);
        ObjectMapper mapper = RestMapperUtils.getStrictObjectMapper();
        for (String line : Files.readAllLines(Path.of(arguments[1]))) {
            String[] parts = line.split("\t");
            Path file = Path.of(parts[1]);
            try {
                String text = Files.readString(file);
                Object answer = mapper.readValue(text, responses.get(parts[0]));
                Files.writeString(Path.of(parts[1] + ".again"), mapper.writeValueAsString(answer));
            } catch (Throwable error) {
                Files.writeString(Path.of(parts[1] + ".error"), String.valueOf(error), StandardCharsets.UTF_8);
            }
        }
    }

    /** The route of each GET, and the class of its answer. */
    private static Map<String, Class<?>> responses(String jar) throws Exception {
        Map<String, Class<?>> found = new TreeMap<>();
        try (JarFile file = new JarFile(jar)) {
            for (JarEntry entry : (Iterable<JarEntry>) file.stream()::iterator) {
                String name = entry.getName();
                if (name.startsWith("org/apache/flink/runtime/rest/") && name.endsWith("Headers.class")) {
                    add(found, Class.forName(name.replace('/', '.').replace(".class", "")));
                }
            }
        }
        return found;
    }

    private static void add(Map<String, Class<?>> found, Class<?> headers) throws Exception {
        if (Modifier.isAbstract(headers.getModifiers()) || !MessageHeaders.class.isAssignableFrom(headers)) {
            return;
        }
        Object made;
        try {
            made = headers.getMethod("getInstance").invoke(null);
        } catch (NoSuchMethodException none) {
            Constructor<?> constructor = headers.getDeclaredConstructor();
            constructor.setAccessible(true);
            made = constructor.newInstance();
        }
        MessageHeaders<?, ?, ?> message = (MessageHeaders<?, ?, ?>) made;
        if (message.getHttpMethod() == HttpMethodWrapper.GET) {
            found.put(message.getTargetRestEndpointURL(), message.getResponseClass());
        }
    }
}
