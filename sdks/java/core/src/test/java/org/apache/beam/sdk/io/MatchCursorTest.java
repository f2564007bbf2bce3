/*
 * Licensed to the Apache Software Foundation (ASF) under one
 * or more contributor license agreements.  See the NOTICE file
 * distributed with this work for additional information
 * regarding copyright ownership.  The ASF licenses this file
 * to you under the Apache License, Version 2.0 (the
 * "License"); you may not use this file except in compliance
 * with the License.  You may obtain a copy of the License at
 *
 *     http://www.apache.org/licenses/LICENSE-2.0
 *
 * Unless required by applicable law or agreed to in writing, software
 * distributed under the License is distributed on an "AS IS" BASIS,
 * WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
 * See the License for the specific language governing permissions and
 * limitations under the License.
 */
package org.apache.beam.sdk.io;

import static org.apache.beam.sdk.transforms.display.DisplayDataMatchers.hasDisplayItem;
import static org.hamcrest.MatcherAssert.assertThat;
import static org.hamcrest.Matchers.containsString;
import static org.hamcrest.Matchers.not;
import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertThrows;

import java.io.File;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.nio.file.attribute.FileTime;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.function.Function;
import org.apache.beam.sdk.coders.Coder;
import org.apache.beam.sdk.coders.VarIntCoder;
import org.apache.beam.sdk.io.FileIO.MatchConfiguration;
import org.apache.beam.sdk.io.fs.EmptyMatchTreatment;
import org.apache.beam.sdk.io.fs.MatchResult.Metadata;
import org.apache.beam.sdk.metrics.MetricNameFilter;
import org.apache.beam.sdk.metrics.MetricResult;
import org.apache.beam.sdk.metrics.MetricsFilter;
import org.apache.beam.sdk.testing.NeedsRunner;
import org.apache.beam.sdk.testing.PAssert;
import org.apache.beam.sdk.testing.TestPipeline;
import org.apache.beam.sdk.testing.UsesUnboundedSplittableParDo;
import org.apache.beam.sdk.transforms.Create;
import org.apache.beam.sdk.transforms.DoFn;
import org.apache.beam.sdk.transforms.ParDo;
import org.apache.beam.sdk.transforms.Watch;
import org.apache.beam.sdk.transforms.Watch.Growth;
import org.apache.beam.sdk.transforms.Watch.Growth.PollResult;
import org.apache.beam.sdk.transforms.display.DisplayData;
import org.apache.beam.sdk.transforms.windowing.BoundedWindow;
import org.apache.beam.sdk.values.KV;
import org.apache.beam.sdk.values.PCollection;
import org.apache.beam.sdk.values.TimestampedValue;
import org.joda.time.DateTimeUtils;
import org.joda.time.Duration;
import org.joda.time.Instant;
import org.junit.After;
import org.junit.Rule;
import org.junit.Test;
import org.junit.experimental.categories.Category;
import org.junit.function.ThrowingRunnable;
import org.junit.rules.TemporaryFolder;
import org.junit.runner.RunWith;
import org.junit.runners.JUnit4;

/** Tests {@link FileIO.Match#withTimestampCursor} and its like. */
@RunWith(JUnit4.class)
public class MatchCursorTest {
  private static final long TIME = 1_600_000_000_000L;
  private static final long SKEW = 60_000;
  private static final Growth.TerminationCondition<String, ?> NEVER = Growth.never();

  @Rule public final transient TestPipeline p = TestPipeline.create();
  @Rule public final transient TemporaryFolder folder = new TemporaryFolder();

  @After
  public void startClock() {
    DateTimeUtils.setCurrentMillisSystem();
  }

  /** Puts a file with its modification time in place at once. */
  private static void put(Path folder, String name, long modified) throws IOException {
    Path file = Files.createTempFile(folder.getParent(), "new", "");
    Files.setLastModifiedTime(file, FileTime.fromMillis(modified));
    Files.move(file, folder.resolve(name), StandardCopyOption.ATOMIC_MOVE);
  }

  private Path files() throws IOException {
    File found = new File(folder.getRoot(), "files");
    return found.isDirectory() ? found.toPath() : folder.newFolder("files").toPath();
  }

  private PollResult<Metadata> poll(long allowedLateness) throws Exception {
    return new MatchCursor.FilesByTime(Duration.millis(allowedLateness))
        .apply(files() + "/*", null);
  }

  /** What is there, at the times that are to be. */
  private PollResult<Metadata> expected(Function<String, Long> times) throws Exception {
    List<TimestampedValue<Metadata>> found = new ArrayList<>();
    for (Metadata file : FileSystems.match(files() + "/*").metadata()) {
      found.add(
          TimestampedValue.of(
              file, new Instant((long) times.apply(file.resourceId().getFilename()))));
    }
    return PollResult.incomplete(found);
  }

  @Test
  public void testFilesAreAtTheirModificationTimes() throws Exception {
    put(files(), "a", TIME);
    put(files(), "b", TIME + 7);
    PollResult<Metadata> expected = expected(name -> name.equals("a") ? TIME : TIME + 7);
    assertEquals(expected.withWatermark(new Instant(TIME + 7)), poll(0));
    assertEquals(expected.withWatermark(new Instant(TIME - 3)), poll(10));
    assertEquals(expected.withWatermark(BoundedWindow.TIMESTAMP_MIN_VALUE), poll(Long.MAX_VALUE));
  }

  @Test
  public void testWithoutFilesTheWatermarkStays() throws Exception {
    files();
    assertEquals(PollResult.incomplete(new ArrayList<>()), poll(0));
  }

  @Test
  public void testFileOfTheFutureDoesNotMoveTheWatermark() throws Exception {
    DateTimeUtils.setCurrentMillisFixed(TIME);
    put(files(), "a", TIME + SKEW);
    put(files(), "b", TIME + SKEW + 1);
    assertEquals(
        expected(name -> name.equals("a") ? TIME + SKEW : TIME + SKEW + 1)
            .withWatermark(new Instant(TIME + SKEW)),
        poll(0));
  }

  @Test
  public void testFileWithoutTimeIsNamed() throws Exception {
    put(files(), "timeless", 0);
    Exception e = assertThrows(IllegalStateException.class, () -> poll(0));
    assertThat(e.getMessage(), containsString("timeless"));
    assertThat(e.getMessage(), containsString("withTimestampCursor"));
  }

  /** Ends a watch with the poll that is the n-th to find something new; or late, if none is. */
  private static final class AfterFinds implements Growth.TerminationCondition<String, Integer> {
    private final Instant latest = Instant.now().plus(Duration.standardMinutes(3));
    private final int count;

    AfterFinds(int count) {
      this.count = count;
    }

    @Override
    public Coder<Integer> getStateCoder() {
      return VarIntCoder.of();
    }

    @Override
    public Integer forNewInput(Instant now, String input) {
      return 0;
    }

    @Override
    public Integer onSeenNewOutput(Instant now, Integer state) {
      return state + 1;
    }

    @Override
    public boolean canStopPolling(Instant now, Integer state) {
      return state >= count || now.isAfter(latest);
    }

    @Override
    public String toString(Integer state) {
      return state + " of " + count;
    }
  }

  /** Writes files because of files that were found. */
  private static final class Answers extends DoFn<Metadata, KV<String, Long>> {
    private final String folder;
    private final boolean findsLate;

    Answers(Path folder, boolean findsLate) {
      this.folder = folder.toString();
      this.findsLate = findsLate;
    }

    @ProcessElement
    public void process(
        @Element Metadata file, @Timestamp Instant time, OutputReceiver<KV<String, Long>> out)
        throws IOException {
      Path files = new File(folder).toPath();
      String name = file.resourceId().getFilename();
      assertEquals(time.getMillis(), file.lastModifiedMillis());
      if (name.equals("a") && time.getMillis() == TIME) {
        put(files, "late", TIME - 1000);
      }
      if (name.equals(findsLate ? "late" : "a") && time.getMillis() <= TIME) {
        put(files, "b", TIME); // At the very time of the cursor.
      } else if (name.equals("b")) {
        put(files, "c", TIME + 1000);
      } else if (name.equals("c")) {
        put(files, "a", TIME + 2000); // It is written anew.
      }
      out.output(KV.of(name, time.getMillis() - TIME));
    }
  }

  /**
   * Checks what is found, one file after the other.
   *
   * @param findsLate whether the lateness is that of the file that is late
   */
  private void assertFindsEachOnce(Path files, PCollection<Metadata> found, boolean findsLate)
      throws Exception {
    put(files, "a", TIME);
    assertEquals(PCollection.IsBounded.UNBOUNDED, found.isBounded());
    List<KV<String, Long>> expected =
        new ArrayList<>(
            Arrays.asList(KV.of("a", 0L), KV.of("b", 0L), KV.of("c", 1000L), KV.of("a", 2000L)));
    if (findsLate) {
      expected.add(KV.of("late", -1000L));
    }
    PAssert.that(found.apply(ParDo.of(new Answers(files, findsLate)))).containsInAnyOrder(expected);
    Iterable<MetricResult<Long>> counters =
        p.run()
            .metrics()
            .queryMetrics(
                MetricsFilter.builder()
                    .addNameFilter(MetricNameFilter.named(Watch.class, "outputs_dropped_late"))
                    .build())
            .getCounters();
    long dropped = 0;
    for (MetricResult<Long> counter : counters) {
      dropped += counter.getAttempted();
    }
    assertEquals(findsLate ? 0 : 1, dropped);
  }

  @Test
  @Category({NeedsRunner.class, UsesUnboundedSplittableParDo.class})
  public void testMatch() throws Exception {
    Path files = files();
    assertFindsEachOnce(
        files,
        p.apply(
            FileIO.match()
                .filepattern(files + "/*")
                .continuously(Duration.millis(50), new AfterFinds(4))
                .withTimestampCursor(Duration.ZERO)),
        false);
  }

  @Test
  @Category({NeedsRunner.class, UsesUnboundedSplittableParDo.class})
  public void testMatchAllWithTheCursorSetFirst() throws Exception {
    Path files = files();
    assertFindsEachOnce(
        files,
        p.apply(Create.of(files + "/*"))
            .apply(
                FileIO.matchAll()
                    .withTimestampCursor(Duration.ZERO)
                    .continuously(Duration.millis(50), new AfterFinds(4))),
        false);
  }

  @Test
  @Category({NeedsRunner.class, UsesUnboundedSplittableParDo.class})
  public void testFindsWhatIsLateByTheLateness() throws Exception {
    Path files = files();
    assertFindsEachOnce(
        files,
        p.apply(
            FileIO.match()
                .filepattern(files + "/*")
                .continuously(Duration.millis(50), new AfterFinds(5))
                .withTimestampCursor(Duration.millis(1000))),
        true);
  }

  @Test
  public void testLatenessIsChecked() {
    for (Duration lateness : new Duration[] {null, Duration.millis(-1)}) {
      for (ThrowingRunnable call :
          Arrays.<ThrowingRunnable>asList(
              () -> FileIO.match().withTimestampCursor(lateness),
              () -> FileIO.matchAll().withTimestampCursor(lateness),
              () ->
                  MatchConfiguration.create(EmptyMatchTreatment.ALLOW)
                      .withTimestampCursor(lateness))) {
        Exception e = assertThrows(IllegalArgumentException.class, call);
        assertThat(e.getMessage(), containsString("allowedLateness"));
      }
    }
  }

  @Test
  public void testCursorOfWhatIsMatchedOnceIsRefused() {
    p.enableAbandonedNodeEnforcement(false);
    Exception e =
        assertThrows(
            IllegalArgumentException.class,
            () -> p.apply(FileIO.match().filepattern("*").withTimestampCursor(Duration.ZERO)));
    assertThat(e.getMessage(), containsString("continuously"));
    e =
        assertThrows(
            IllegalArgumentException.class,
            () ->
                p.apply("Patterns", Create.of("*"))
                    .apply(FileIO.matchAll().withTimestampCursor(Duration.ZERO)));
    assertThat(e.getMessage(), containsString("continuously"));
  }

  @Test
  public void testDisplayData() {
    FileIO.MatchAll match = FileIO.matchAll().continuously(Duration.millis(5), NEVER);
    String item = "timestampCursorAllowedLateness";
    assertThat(DisplayData.from(match), not(hasDisplayItem(item)));
    assertThat(
        DisplayData.from(match.withTimestampCursor(Duration.millis(7))),
        hasDisplayItem(item, Duration.millis(7)));
  }
}
