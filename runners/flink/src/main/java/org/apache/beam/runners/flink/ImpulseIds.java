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
package org.apache.beam.runners.flink;

import org.apache.beam.vendor.guava.v32_1_2_jre.com.google.common.hash.Hasher;
import org.apache.beam.vendor.guava.v32_1_2_jre.com.google.common.hash.Hashing;
import org.apache.flink.streaming.api.datastream.SingleOutputStreamOperator;

/**
 * Gives the impulses of a job ids that are the same at any parallelism.
 *
 * <p>Flink makes the id of an operator that was not given one out of its number and of what is
 * chained to it. An impulse is not parallel: a stage is chained to it only where that is not
 * parallel either. A checkpoint of one parallelism was therefore not found at another.
 */
final class ImpulseIds {
  private int impulses;

  /** To be called for each impulse of a job, in the order in which they are translated. */
  void keep(SingleOutputStreamOperator<?> impulse) {
    impulse.disableChaining();
    // Found in checkpoints that older releases wrote at parallelism 1; those of other ones have
    // the id that Flink makes now.
    impulse.setUidHash(whenChained(impulses));
    impulses++;
  }

  /** The id that Flink makes for a source of this number with one operator chained to it. */
  static String whenChained(int number) {
    Hasher hasher = Hashing.murmur3_128(0).newHasher();
    hasher.putInt(number);
    hasher.putInt(number);
    return hasher.hash().toString();
  }
}
