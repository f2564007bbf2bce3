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
package org.apache.beam.runners.flink.translation.wrappers.streaming;

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.beam.runners.flink.adapter.FlinkKey;
import org.apache.flink.api.common.TaskInfo;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.dag.Transformation;
import org.apache.flink.api.java.functions.KeySelector;
import org.apache.flink.api.java.typeutils.ResultTypeQueryable;
import org.apache.flink.api.java.typeutils.ValueTypeInfo;
import org.apache.flink.runtime.state.KeyGroupRange;
import org.apache.flink.runtime.state.KeyGroupRangeAssignment;
import org.apache.flink.streaming.api.transformations.OneInputTransformation;
import org.apache.flink.streaming.api.transformations.TwoInputTransformation;
import org.checkerframework.checker.nullness.qual.Nullable;

/**
 * Keys for the state of a subtask whose input does not come by key.
 *
 * <p>The splits of a source are dealt out to the subtasks in turn. What is left of one, its
 * residual, stays in the subtask that has read of it. Flink wants a key for its state and its timer
 * all the same, and finds them again after a change of the parallelism by that key. So a key is
 * made that the subtask owns.
 *
 * <p>There is one key of each key group of the subtask. Residuals are put under them in an order in
 * which each beginning is spread over the groups: a job that goes on with more subtasks finds what
 * waited divided among them. The place of a residual that was resumed is free for the next.
 *
 * <p>Nothing but evenness depends on what this class knows of places. It begins with all places
 * free, also when there are residuals of before a restore, under whatever keys.
 *
 * <p>Not thread-safe: all calls are those of the thread of the task.
 *
 * @param <T> what a key is asked for when it has to wait for a side input
 */
public class SubtaskKeys<T> implements KeySelector<T, FlinkKey>, ResultTypeQueryable<FlinkKey> {

  private static final TypeInformation<FlinkKey> TYPE = ValueTypeInfo.of(FlinkKey.class);

  private transient List<FlinkKey> keys;
  private transient Map<FlinkKey, Integer> places;
  private transient int[] waiting;
  private transient int turn;
  private transient @Nullable Object lastParked;
  private transient FlinkKey keyOfLast;

  /**
   * Keys the state of an operator without dividing its input by key.
   *
   * @param operator one with one input, or whose first input is the one that is not keyed
   */
  public void keyStateOf(Transformation<?> operator) {
    if (operator instanceof TwoInputTransformation) {
      @SuppressWarnings("unchecked")
      TwoInputTransformation<T, ?, ?> two = (TwoInputTransformation<T, ?, ?>) operator;
      two.setStateKeySelectors(this, null);
      two.setStateKeyType(TYPE);
    } else {
      @SuppressWarnings("unchecked")
      OneInputTransformation<T, ?> one = (OneInputTransformation<T, ?>) operator;
      one.setStateKeySelector(this);
      one.setStateKeyType(TYPE);
    }
  }

  /** Makes the keys of a subtask. To be called in it before any key is asked for. */
  public void open(TaskInfo task) {
    int keyGroups = task.getMaxNumberOfParallelSubtasks();
    KeyGroupRange own =
        KeyGroupRangeAssignment.computeKeyGroupRangeForOperatorIndex(
            keyGroups, task.getNumberOfParallelSubtasks(), task.getIndexOfThisSubtask());
    FlinkKey[] found = keysOf(own, keyGroups);
    keys = new ArrayList<>(found.length);
    places = new HashMap<>();
    for (int index : spread(found.length)) {
      places.put(found[index], keys.size());
      keys.add(found[index]);
    }
    waiting = new int[found.length];
    turn = 0;
    lastParked = null;
  }

  /** The first key of each key group, among those that are made of the numbers from 0. */
  private static FlinkKey[] keysOf(KeyGroupRange own, int keyGroups) {
    FlinkKey[] found = new FlinkKey[own.getNumberOfKeyGroups()];
    int missing = found.length;
    for (int number = 0; missing > 0; number++) {
      FlinkKey key = FlinkKey.of(ByteBuffer.wrap(ByteBuffer.allocate(4).putInt(number).array()));
      int group = KeyGroupRangeAssignment.assignToKeyGroup(key, keyGroups);
      if (own.contains(group) && found[group - own.getStartKeyGroup()] == null) {
        found[group - own.getStartKeyGroup()] = key;
        missing--;
      }
    }
    return found;
  }

  /**
   * The numbers below a size, such that each beginning of them is spread evenly: they are counted
   * up with their bits read backwards.
   */
  static List<Integer> spread(int size) {
    List<Integer> order = new ArrayList<>(size);
    int bits = Integer.SIZE - Integer.numberOfLeadingZeros(size - 1);
    for (int i = 0; i < 1 << bits; i++) {
      int number = bits == 0 ? 0 : Integer.reverse(i) >>> (Integer.SIZE - bits);
      if (number < size) {
        order.add(number);
      }
    }
    return order;
  }

  /**
   * A key for what waits for a side input, another one each time.
   *
   * <p>Flink itself does not ask: the operator leaves its key alone while it processes elements.
   */
  @Override
  public FlinkKey getKey(T element) {
    checkOpen();
    turn = (turn + 1) % keys.size();
    return keys.get(turn);
  }

  /**
   * The key of a residual that is put away: the first in order of those with the fewest.
   *
   * <p>The key of a residual is asked for twice, for its state and for its timer. Both times must
   * give one key, so the same object gets it.
   */
  public FlinkKey park(Object residual) {
    checkOpen();
    if (residual != lastParked) {
      int place = firstOfTheFewest();
      waiting[place]++;
      keyOfLast = keys.get(place);
      lastParked = residual;
    }
    return keyOfLast;
  }

  private int firstOfTheFewest() {
    int best = 0;
    for (int place = 0; place < waiting.length && waiting[best] > 0; place++) {
      if (waiting[place] < waiting[best]) {
        best = place;
      }
    }
    return best;
  }

  /**
   * Frees the place of a residual that is resumed. Any key will do, also one of before a restore.
   */
  public void release(FlinkKey key) {
    checkOpen();
    Integer place = places.get(key);
    if (place != null && waiting[place] > 0) {
      waiting[place]--;
    }
  }

  private void checkOpen() {
    if (keys == null) {
      throw new IllegalStateException(
          "Which keys a subtask owns is known only in it, after open()");
    }
  }

  @Override
  public TypeInformation<FlinkKey> getProducedType() {
    return TYPE;
  }
}
