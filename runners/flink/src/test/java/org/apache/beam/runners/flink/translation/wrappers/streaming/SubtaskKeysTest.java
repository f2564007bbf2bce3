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

import static org.hamcrest.MatcherAssert.assertThat;
import static org.hamcrest.Matchers.contains;
import static org.hamcrest.Matchers.everyItem;
import static org.hamcrest.Matchers.hasSize;
import static org.hamcrest.Matchers.is;
import static org.hamcrest.Matchers.lessThanOrEqualTo;
import static org.hamcrest.Matchers.not;
import static org.junit.Assert.assertThrows;

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashSet;
import java.util.List;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.apache.beam.runners.flink.adapter.FlinkKey;
import org.apache.beam.sdk.coders.ByteArrayCoder;
import org.apache.beam.sdk.coders.Coder;
import org.apache.beam.sdk.coders.KvCoder;
import org.apache.beam.sdk.coders.StringUtf8Coder;
import org.apache.beam.sdk.coders.VarLongCoder;
import org.apache.beam.sdk.coders.VoidCoder;
import org.apache.beam.sdk.values.KV;
import org.apache.flink.api.common.TaskInfo;
import org.apache.flink.api.common.TaskInfoImpl;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.java.typeutils.ValueTypeInfo;
import org.apache.flink.runtime.state.KeyGroupRangeAssignment;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.graph.StreamGraph;
import org.apache.flink.streaming.api.graph.StreamNode;
import org.apache.flink.streaming.api.operators.StreamMap;
import org.apache.flink.util.InstantiationUtil;
import org.junit.Test;
import org.junit.runner.RunWith;
import org.junit.runners.JUnit4;

/** Tests of {@link SubtaskKeys} and {@link AnyKeyCoder}, with what Flink makes of their keys. */
@RunWith(JUnit4.class)
public class SubtaskKeysTest {

  private static final int KEY_GROUPS = 128;

  private static TaskInfo task(int keyGroups, int parallelism, int index) {
    return new TaskInfoImpl("splits", keyGroups, index, parallelism, 0);
  }

  private static SubtaskKeys<String> opened(int keyGroups, int parallelism, int index) {
    SubtaskKeys<String> keys = new SubtaskKeys<>();
    keys.open(task(keyGroups, parallelism, index));
    return keys;
  }

  private static List<FlinkKey> park(SubtaskKeys<String> keys, int count) {
    return IntStream.range(0, count)
        .mapToObj(i -> keys.park(new Object()))
        .collect(Collectors.toList());
  }

  /** How many of the keys each of the subtasks has. */
  private static List<Integer> divided(List<FlinkKey> keys, int parallelism) {
    Integer[] found = new Integer[parallelism];
    Arrays.fill(found, 0);
    for (FlinkKey key : keys) {
      found[KeyGroupRangeAssignment.assignKeyToParallelOperator(key, KEY_GROUPS, parallelism)]++;
    }
    return Arrays.asList(found);
  }

  private static int unevenness(List<Integer> counts) {
    return Collections.max(counts) - Collections.min(counts);
  }

  private static byte[] bytes(FlinkKey key) {
    return key.getSerializedKey().array();
  }

  @Test
  public void keysAreThoseOfTheSubtask() throws Exception {
    for (int keyGroups : new int[] {1, 3, 128, 1000}) {
      for (int parallelism : new int[] {1, 2, 3, 7, 128}) {
        for (int index = 0; index < parallelism && parallelism <= keyGroups; index++) {
          SubtaskKeys<String> keys = opened(keyGroups, parallelism, index);
          List<FlinkKey> given = park(keys, 20);
          for (int i = 0; i < 20; i++) {
            given.add(keys.getKey("waits for a side input"));
          }
          for (FlinkKey key : given) {
            assertThat(
                KeyGroupRangeAssignment.assignKeyToParallelOperator(key, keyGroups, parallelism),
                is(index));
          }
        }
      }
    }
  }

  @Test
  public void residualsHaveKeysOfTheirOwnWhileThereAreAny() {
    List<FlinkKey> given = park(opened(KEY_GROUPS, 2, 1), 64);
    assertThat(new HashSet<>(given), hasSize(64));
  }

  @Test
  public void moreResidualsThanKeyGroupsAreSpreadOverThem() {
    List<FlinkKey> given = park(opened(KEY_GROUPS, 64, 5), 7);
    assertThat(new HashSet<>(given), hasSize(2));
    int first = Collections.frequency(given, given.get(0));
    assertThat(Math.abs(first - (7 - first)), is(1));
  }

  @Test
  public void residualsAreDividedWhenTheParallelismGrows() {
    for (int count = 1; count <= KEY_GROUPS; count++) {
      List<FlinkKey> given = park(opened(KEY_GROUPS, 1, 0), count);
      assertThat(unevenness(divided(given, 2)), lessThanOrEqualTo(1));
      assertThat(unevenness(divided(given, 4)), lessThanOrEqualTo(1));
      assertThat(unevenness(divided(given, 3)), lessThanOrEqualTo(4));
    }
    assertThat(divided(park(opened(KEY_GROUPS, 1, 0), 4), 2), contains(2, 2));
    assertThat(divided(park(opened(KEY_GROUPS, 2, 1), 2), 4), contains(0, 0, 1, 1));
  }

  @Test
  public void residualsOfSubtasksComeTogetherWhenTheParallelismShrinks() {
    List<FlinkKey> all = park(opened(KEY_GROUPS, 3, 0), 2);
    all.addAll(park(opened(KEY_GROUPS, 3, 1), 2));
    all.addAll(park(opened(KEY_GROUPS, 3, 2), 2));
    assertThat(divided(all, 1), contains(6));
    assertThat(divided(all, 2), contains(3, 3));
  }

  @Test
  public void residualThatWaitsKeepsItsPlaceFromThoseThatAreBusy() {
    SubtaskKeys<String> keys = opened(KEY_GROUPS, 1, 0);
    List<FlinkKey> given = park(keys, 4);
    for (int round = 0; round < 1000; round++) {
      // The second to the fourth are resumed and put away again, the first waits.
      given.subList(1, 4).forEach(keys::release);
      given = new ArrayList<>(given.subList(0, 1));
      given.addAll(park(keys, 3));
      assertThat(divided(given, 4), contains(1, 1, 1, 1));
    }
  }

  @Test
  public void residualsOfBeforeARestoreFindTheirPlacesAgain() {
    // All places seem free, although residuals wait, one of them under a key of another release.
    SubtaskKeys<String> keys = opened(KEY_GROUPS, 1, 0);
    List<FlinkKey> given = park(opened(KEY_GROUPS, 1, 0), 3);
    given.add(FlinkKey.of("element", StringUtf8Coder.of()));
    for (FlinkKey key : new ArrayList<>(given)) {
      keys.release(key);
      given.remove(key);
      given.addAll(park(keys, 1));
    }
    assertThat(divided(given, 4), contains(1, 1, 1, 1));
  }

  @Test
  public void stateAndTimerOfAResidualHaveOneKey() {
    SubtaskKeys<String> keys = opened(KEY_GROUPS, 1, 0);
    Object residual = new String("residual");
    FlinkKey key = keys.park(residual);
    assertThat(keys.park(residual), is(key));
    assertThat(keys.park(new String("residual")), is(not(key)));
    assertThat(new HashSet<>(park(keys, 126)), hasSize(126));
  }

  @Test
  public void elementsThatWaitForASideInputAreSpread() {
    SubtaskKeys<String> keys = opened(KEY_GROUPS, 2, 0);
    List<FlinkKey> given = new ArrayList<>();
    for (int i = 0; i < 8; i++) {
      given.add(keys.getKey("same"));
    }
    assertThat(divided(given, 4), contains(4, 4, 0, 0));
  }

  @Test
  public void keysStayWhatTheyAre() {
    // Checkpoints hold them.
    List<FlinkKey> given = park(opened(KEY_GROUPS, 2, 1), 3);
    assertThat(
        given.stream()
            .map(key -> ByteBuffer.wrap(bytes(key)).getInt())
            .collect(Collectors.toList()),
        contains(339, 38, 16));
    assertThat(
        given.stream().map(key -> bytes(key).length).collect(Collectors.toList()),
        everyItem(is(4)));
  }

  @Test
  public void orderIsSpreadFromItsBeginning() {
    assertThat(SubtaskKeys.spread(1), contains(0));
    assertThat(SubtaskKeys.spread(2), contains(0, 1));
    assertThat(SubtaskKeys.spread(6), contains(0, 4, 2, 1, 5, 3));
    assertThat(SubtaskKeys.spread(8), contains(0, 4, 2, 6, 1, 5, 3, 7));
  }

  @Test
  public void keyOutsideOfASubtaskIsRefused() {
    SubtaskKeys<String> keys = new SubtaskKeys<>();
    IllegalStateException thrown =
        assertThrows(IllegalStateException.class, () -> keys.park("residual"));
    assertThat(thrown.getMessage().contains("open()"), is(true));
    assertThrows(IllegalStateException.class, () -> keys.getKey("element"));
  }

  @Test
  public void keysAreMadeAnewInTheSubtask() throws Exception {
    SubtaskKeys<String> keys = opened(KEY_GROUPS, 1, 0);
    park(keys, 5);
    SubtaskKeys<String> sent = InstantiationUtil.clone(keys);
    sent.open(task(KEY_GROUPS, 2, 1));
    assertThat(divided(park(sent, 2), 2), contains(0, 2));
  }

  @Test
  public void anyKeyIsRead() throws Exception {
    // Keys of older releases are elements, by whatever coder.
    assertThat(
        read(KV.of("a", 300L), KvCoder.of(StringUtf8Coder.of(), VarLongCoder.of())).length, is(4));
    assertThat(read(null, VoidCoder.of()).length, is(0));
    assertThat(read(new byte[] {5, 6}, ByteArrayCoder.of()), is(new byte[] {2, 5, 6}));
    FlinkKey own = opened(KEY_GROUPS, 1, 0).park("residual");
    assertThat(own.getKey(AnyKeyCoder.of()), is(bytes(own)));
    assertThat(
        FlinkKey.of(new byte[] {7, 8}, AnyKeyCoder.of()),
        is(FlinkKey.of(ByteBuffer.wrap(new byte[] {7, 8}))));
  }

  private static <K> byte[] read(K key, Coder<K> coder) {
    return FlinkKey.of(key, coder).getKey(AnyKeyCoder.of());
  }

  @Test
  public void operatorHasKeyedStateAndAnInputThatIsNotKeyed() {
    StreamExecutionEnvironment env = StreamExecutionEnvironment.getExecutionEnvironment();
    DataStream<String> splits = env.fromData("a", "b");
    DataStream<String> read =
        splits.rebalance().transform("read", Types.STRING, new StreamMap<>(split -> split));
    new SubtaskKeys<String>().keyStateOf(read.getTransformation());
    StreamNode node = node(env, read);
    assertThat(
        node.getStateKeySerializer(),
        is(
            ValueTypeInfo.of(FlinkKey.class)
                .createSerializer(env.getConfig().getSerializerConfig())));
    assertThat(node.getStatePartitioners().length, is(1));
    assertThat(node.getInEdges().get(0).getPartitioner().toString(), is("REBALANCE"));
  }

  private static StreamNode node(StreamExecutionEnvironment env, DataStream<?> stream) {
    stream.print();
    StreamGraph graph = env.getStreamGraph();
    return graph.getStreamNode(stream.getId());
  }
}
