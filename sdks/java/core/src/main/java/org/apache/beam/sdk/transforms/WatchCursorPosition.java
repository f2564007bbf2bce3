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

import com.google.auto.value.AutoValue;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import org.apache.beam.sdk.coders.AtomicCoder;
import org.apache.beam.sdk.coders.BigEndianLongCoder;
import org.apache.beam.sdk.coders.InstantCoder;
import org.joda.time.Instant;

/**
 * Where the cursor of one watch stands: the part that {@link WatchCursor} adds to its persisted
 * state.
 */
@AutoValue
abstract class WatchCursorPosition {
  static WatchCursorPosition of(Instant cursor, long watchId) {
    return new AutoValue_WatchCursorPosition(cursor, watchId);
  }

  /** The greatest event time that was output. Never goes back. */
  abstract Instant getCursor();

  /**
   * Tells this watch from others: {@link WatchLateOutputs} finds by it what this process remembers.
   */
  abstract long getWatchId();

  /** Eight bytes for the event time, to the millisecond, and eight for the id. */
  static final class PositionCoder extends AtomicCoder<WatchCursorPosition> {
    private static final PositionCoder INSTANCE = new PositionCoder();

    static PositionCoder of() {
      return INSTANCE;
    }

    private PositionCoder() {}

    @Override
    public void encode(WatchCursorPosition value, OutputStream out) throws IOException {
      InstantCoder.of().encode(value.getCursor(), out);
      BigEndianLongCoder.of().encode(value.getWatchId(), out);
    }

    @Override
    public WatchCursorPosition decode(InputStream in) throws IOException {
      Instant cursor = InstantCoder.of().decode(in);
      return WatchCursorPosition.of(cursor, BigEndianLongCoder.of().decode(in));
    }
  }
}
