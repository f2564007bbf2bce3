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

import static org.apache.beam.vendor.guava.v32_1_2_jre.com.google.common.base.Preconditions.checkArgument;

import java.util.ArrayList;
import java.util.List;
import org.apache.beam.sdk.io.FileIO.MatchConfiguration;
import org.apache.beam.sdk.io.fs.EmptyMatchTreatment;
import org.apache.beam.sdk.io.fs.MatchResult.Metadata;
import org.apache.beam.sdk.io.fs.MetadataCoderV2;
import org.apache.beam.sdk.transforms.Contextful;
import org.apache.beam.sdk.transforms.Requirements;
import org.apache.beam.sdk.transforms.SerializableFunction;
import org.apache.beam.sdk.transforms.Watch;
import org.apache.beam.sdk.transforms.Watch.Growth.PollFn;
import org.apache.beam.sdk.transforms.Watch.Growth.PollResult;
import org.apache.beam.sdk.transforms.windowing.BoundedWindow;
import org.apache.beam.sdk.values.TimestampedValue;
import org.joda.time.Duration;
import org.joda.time.Instant;

/**
 * Continuous matching with a cursor: files have their modification times as event times, and the
 * files of the last while are remembered, not all that there ever were.
 */
final class MatchCursor {
  /** By how much clocks may differ: as for the cursor of {@link Watch}. */
  private static final Duration CLOCK_SKEW = Duration.standardMinutes(1);

  private MatchCursor() {}

  static Duration checkLateness(Duration allowedLateness) {
    checkArgument(allowedLateness != null, "allowedLateness can not be null");
    checkArgument(
        allowedLateness.getMillis() >= 0,
        "allowedLateness can not be negative, but is %s",
        allowedLateness);
    return allowedLateness;
  }

  /** Called when the transform is applied: its parts may be set in any order. */
  static void checkIsContinuous(MatchConfiguration configuration) {
    checkArgument(
        configuration.getCursorLateness() == null || configuration.getWatchInterval() != null,
        "withTimestampCursor() bounds what continuously() remembers. Call continuously() too, or "
            + "leave it out.");
  }

  /** Watches the files of the patterns that are its input. */
  static <KeyT> Watch.Growth<String, Metadata, KeyT> watch(
      MatchConfiguration configuration, SerializableFunction<Metadata, KeyT> keyFn) {
    Duration allowedLateness = configuration.getCursorLateness();
    return Watch.growthOf(
            Contextful.of(new FilesByTime(allowedLateness), Requirements.empty()), keyFn)
        .withPollInterval(configuration.getWatchInterval())
        .withTerminationPerInput(configuration.getWatchTerminationCondition())
        // The default coder leaves the modification time out, and the key has it.
        .withOutputCoder(MetadataCoderV2.of())
        .withTimestampCursor(allowedLateness);
  }

  /** Lists files at their modification times. */
  static final class FilesByTime extends PollFn<String, Metadata> {
    private final Duration allowedLateness;

    FilesByTime(Duration allowedLateness) {
      this.allowedLateness = allowedLateness;
    }

    @Override
    public PollResult<Metadata> apply(String pattern, Context c) throws Exception {
      Instant latest = Instant.now().plus(CLOCK_SKEW);
      List<TimestampedValue<Metadata>> files = new ArrayList<>();
      Instant newest = null;
      for (Metadata file : FileSystems.match(pattern, EmptyMatchTreatment.ALLOW).metadata()) {
        Instant time = modified(file);
        files.add(TimestampedValue.of(file, time));
        if (!time.isAfter(latest) && (newest == null || time.isAfter(newest))) {
          newest = time;
        }
      }
      PollResult<Metadata> found = PollResult.incomplete(files);
      // What is behind the newest file by more than the lateness is dropped: nothing comes from
      // there any more. A time that is wrong by years would make all that follows late.
      return newest == null ? found : found.withWatermark(floor(newest));
    }

    private static Instant modified(Metadata file) {
      if (file.lastModifiedMillis() == 0) {
        throw new IllegalStateException(
            "The file system gives no modification time for "
                + file.resourceId()
                + ". withTimestampCursor() needs one: leave it out, or keep this file out of the "
                + "pattern.");
      }
      return new Instant(file.lastModifiedMillis());
    }

    private Instant floor(Instant newest) {
      long lowest = BoundedWindow.TIMESTAMP_MIN_VALUE.getMillis();
      boolean reachesDown = allowedLateness.getMillis() >= newest.getMillis() - lowest;
      return reachesDown ? BoundedWindow.TIMESTAMP_MIN_VALUE : newest.minus(allowedLateness);
    }
  }
}
