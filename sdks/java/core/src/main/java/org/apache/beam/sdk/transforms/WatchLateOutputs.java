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
package org.apache.beam.sdk.transforms;

import java.util.Set;
import java.util.concurrent.ThreadLocalRandom;
import org.apache.beam.vendor.guava.v32_1_2_jre.com.google.common.annotations.VisibleForTesting;
import org.apache.beam.vendor.guava.v32_1_2_jre.com.google.common.cache.Cache;
import org.apache.beam.vendor.guava.v32_1_2_jre.com.google.common.cache.CacheBuilder;
import org.apache.beam.vendor.guava.v32_1_2_jre.com.google.common.hash.HashCode;
import org.checkerframework.checker.nullness.qual.Nullable;
import org.joda.time.Instant;

/**
 * Tells outputs that are lost behind the cursor of a watch from those that were output long ago.
 *
 * <p>Both are listed below the floor, poll for poll. The state of a watch no longer knows which is
 * which: that is what keeps it small. So this process remembers what was below the floor, and what
 * is there now and never was before, is lost. It is for counting alone. Where this process did not
 * make the last poll, or there is too much to remember, it cannot tell, and says that nothing was
 * lost.
 *
 * <p>What is remembered of a watch is good for one position of its cursor only: work that went on
 * elsewhere in between, or that was restored from an older checkpoint, brings another.
 */
final class WatchLateOutputs {
  /** Of all watches of a process together; a hash takes some 100 bytes. Then the oldest go. */
  static final int MAX_HASHES = 1_000_000;

  /** What this process remembers of its watches; the bound is of their hashes. */
  private static final WatchLateOutputs OF_PROCESS = new WatchLateOutputs(MAX_HASHES);

  private final Cache<Long, Known> watches;

  WatchLateOutputs(int maxHashes) {
    // In one segment: each of several would have but its share of the bound.
    this.watches =
        CacheBuilder.newBuilder()
            .concurrencyLevel(1)
            .maximumWeight(maxHashes)
            .weigher((Long id, Known known) -> 1 + known.hashes.size())
            .build();
  }

  static WatchLateOutputs ofProcess() {
    return OF_PROCESS;
  }

  /** Below the floor that belongs to the cursor. */
  private static final class Known {
    final Instant cursor;
    final Set<HashCode> hashes;

    Known(Instant cursor, Set<HashCode> hashes) {
      this.cursor = cursor;
      this.hashes = hashes;
    }
  }

  /**
   * How many of the outputs that a poll listed below the floor were not there before.
   *
   * @param below may be kept
   */
  synchronized long countNew(WatchCursorPosition position, Set<HashCode> below) {
    Known known = watches.getIfPresent(position.getWatchId());
    if (known == null || !known.cursor.equals(position.getCursor())) {
      put(position, below);
      return 0;
    }
    int before = known.hashes.size();
    // What is not listed now stays: it may be listed again, and is not lost then.
    known.hashes.addAll(below);
    put(position, known.hashes);
    return known.hashes.size() - before;
  }

  /**
   * The cursor of a watch moved.
   *
   * @param from where it stood; null where the watch had none yet
   * @param to where it stands
   * @param expired what was output, and lies below the floor now; may be kept
   */
  synchronized void moved(
      @Nullable WatchCursorPosition from, WatchCursorPosition to, Set<HashCode> expired) {
    if (from == null) {
      put(to, expired);
      return;
    }
    Known known = watches.getIfPresent(to.getWatchId());
    if (known == null || !known.cursor.equals(from.getCursor())) {
      watches.invalidate(to.getWatchId());
      return;
    }
    known.hashes.addAll(expired);
    put(to, known.hashes);
  }

  /** As a new process begins. */
  @VisibleForTesting
  synchronized void forgetAll() {
    watches.invalidateAll();
  }

  private void put(WatchCursorPosition position, Set<HashCode> hashes) {
    watches.put(position.getWatchId(), new Known(position.getCursor(), hashes));
  }

  /** An id for a watch that has none yet. */
  static long newWatchId() {
    return ThreadLocalRandom.current().nextLong();
  }
}
