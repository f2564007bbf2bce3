import java.util.ArrayList;
import java.util.List;
import org.apache.beam.sdk.Pipeline;
import org.apache.beam.sdk.io.FileIO;
import org.apache.beam.sdk.io.fs.MatchResult;
import org.apache.beam.sdk.transforms.Watch;
import org.apache.beam.sdk.transforms.Watch.Growth.PollFn;
import org.apache.beam.sdk.transforms.Watch.Growth.PollResult;
import org.apache.beam.sdk.values.KV;
import org.apache.beam.sdk.values.PCollection;
import org.apache.beam.sdk.values.TimestampedValue;
import org.joda.time.Duration;
import org.joda.time.Instant;

abstract class JavaWatchCursor {
  interface Report {
    String name();

    Instant filed();
  }

  abstract List<Report> reportsOf(String customer);

  void watchReports(PCollection<String> customers) {
    // block 1 of website/www/site/content/en/documentation/sdks/java-watch-cursor.md
  }

  // block 2 of website/www/site/content/en/documentation/sdks/java-watch-cursor.md

  void watchFiles(Pipeline p) {
    // block 3 of website/www/site/content/en/documentation/sdks/java-watch-cursor.md
  }
}
