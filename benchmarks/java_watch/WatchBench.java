// Licensed under the Apache License, Version 2.0: see LICENSE.
package org.apache.beam.sdk.transforms;

import com.sun.management.OperatingSystemMXBean;
import java.lang.management.ManagementFactory;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import java.util.logging.LogManager;
import org.apache.beam.sdk.Pipeline;
import org.apache.beam.sdk.options.PipelineOptionsFactory;
import org.apache.beam.sdk.transforms.Watch.Growth;
import org.apache.beam.sdk.transforms.Watch.Growth.PollFn;
import org.apache.beam.sdk.transforms.Watch.Growth.PollResult;
import org.apache.beam.sdk.values.KV;
import org.apache.beam.sdk.values.TimestampedValue;
import org.joda.time.Duration;
import org.joda.time.Instant;

/**
 * One measured watch of a list that grows: started by java_watch.py.
 *
 * <p>usage: WatchBench rounds|pipeline keys|cursor OUTPUTS ROUNDS
 *
 * <p>Prints one line, RESULT {json}, if each output arrived once. On a released Beam there is no
 * cursor.
 */
public final class WatchBench {
  private static final List<TimestampedValue<String>> LISTED = new ArrayList<>();
  private static final AtomicInteger POLLS = new AtomicInteger();
  private static final AtomicLong ARRIVED = new AtomicLong();

  private WatchBench() {}

  public static void main(String[] args) throws Exception {
    LogManager.getLogManager().reset();
    boolean cursor = args[1].equals("cursor");
    int outputs = Integer.parseInt(args[2]);
    int rounds = Integer.parseInt(args[3]);
    OperatingSystemMXBean system =
        (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
    long cpu = system.getProcessCpuTime();
    long wall = System.nanoTime();
    int state = 0;
    if (args[0].equals("rounds")) {
      state = rounds(cursor, outputs, rounds);
    } else {
      pipeline(cursor, outputs, rounds);
    }
    cpu = system.getProcessCpuTime() - cpu;
    wall = System.nanoTime() - wall;
    if (ARRIVED.get() != (long) outputs * rounds) {
      throw new AssertionError(ARRIVED + " arrived");
    }
    System.out.printf(
        "RESULT {\"cpu_s\": %.3f, \"wall_s\": %.3f, \"state_bytes\": %d, \"java\": \"%s\"}%n",
        cpu / 1e9, wall / 1e9, state, System.getProperty("java.version"));
  }

  /** What a poll lists: all before, and as many more, each a millisecond later. */
  private static PollResult<String> grow(int outputs) {
    for (int i = 0; i < outputs; i++) {
      int number = LISTED.size();
      LISTED.add(TimestampedValue.of("output-" + number, new Instant(1_600_000_000_000L + number)));
    }
    return PollResult.incomplete(Collections.unmodifiableList(LISTED));
  }

  /** The DoFn alone, its state through its bytes each round; the greatest number of these. */
  private static int rounds(boolean cursor, int outputs, int rounds) {
    WatchHarness watch = new WatchHarness(cursor ? Duration.ZERO : null, 0);
    int bytes = 0;
    for (int round = 0; round < rounds; round++) {
      ARRIVED.addAndGet(watch.poll(WatchHarness.Step.COMMIT, grow(outputs)).size());
      bytes = Math.max(bytes, watch.state().length);
    }
    return bytes;
  }

  /** On the DirectRunner, with its checks. */
  private static void pipeline(boolean cursor, int outputs, int rounds) {
    Growth<String, String, String> growth =
        Watch.growthOf(new Grows(outputs))
            .withPollInterval(Duration.ZERO)
            .withTerminationPerInput(Growth.afterIterations(rounds));
    if (cursor) {
      growth = growth.withTimestampCursor(Duration.ZERO);
    }
    Pipeline pipeline = Pipeline.create(PipelineOptionsFactory.create());
    pipeline.apply(Create.of("input")).apply(growth).apply(ParDo.of(new Counts()));
    pipeline.run().waitUntilFinish();
    if (POLLS.get() != rounds) {
      throw new AssertionError(POLLS + " polls");
    }
  }

  private static final class Grows extends PollFn<String, String> {
    private final int outputs;

    Grows(int outputs) {
      this.outputs = outputs;
    }

    @Override
    public PollResult<String> apply(String element, Context c) {
      POLLS.incrementAndGet();
      return grow(outputs);
    }
  }

  private static final class Counts extends DoFn<KV<String, String>, Void> {
    @ProcessElement
    public void process(@Element KV<String, String> output) {
      ARRIVED.incrementAndGet();
    }
  }
}
