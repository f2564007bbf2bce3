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
package org.apache.beam.runners.spark.translation;

import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.Serializable;
import java.util.ArrayList;
import java.util.Collections;
import java.util.Iterator;
import java.util.List;
import org.apache.beam.model.fnexecution.v1.BeamFnApi.DelayedBundleApplication;
import org.apache.beam.sdk.coders.Coder;
import org.apache.beam.sdk.transforms.join.RawUnionValue;
import org.apache.beam.sdk.values.WindowedValue;
import org.apache.beam.vendor.grpc.v1p69p0.com.google.protobuf.InvalidProtocolBufferException;
import org.apache.spark.SparkEnv;
import org.apache.spark.api.java.function.FlatMapFunction;

/** Runs a stage for one micro-batch: one bundle for what a task has of it. */
class StreamReadFunction<InputT>
    implements FlatMapFunction<Iterator<WindowedValue<InputT>>, StreamReadFunction.Result> {

  private final FlatMapFunction<Iterator<WindowedValue<InputT>>, RawUnionValue> stage;
  private final Coder<RawUnionValue> outputCoder;

  /**
   * Runs a stage.
   *
   * @param stage gives the outputs of the stage
   * @param outputCoder of these
   */
  StreamReadFunction(
      FlatMapFunction<Iterator<WindowedValue<InputT>>, RawUnionValue> stage,
      Coder<RawUnionValue> outputCoder) {
    this.stage = stage;
    this.outputCoder = outputCoder;
  }

  @Override
  public Iterator<Result> call(Iterator<WindowedValue<InputT>> inputs) throws Exception {
    if (!inputs.hasNext()) {
      return Collections.emptyIterator();
    }
    try (StreamReadTask task = new StreamReadTask()) {
      byte[] outputs = encode(stage.call(inputs));
      return Collections.singleton(new Result(outputs, task.residuals(), task.hold())).iterator();
    }
  }

  private byte[] encode(Iterator<RawUnionValue> outputs) throws IOException {
    ByteArrayOutputStream stream = new ByteArrayOutputStream();
    while (outputs.hasNext()) {
      outputCoder.encode(outputs.next(), stream);
    }
    return stream.toByteArray();
  }

  /** Decodes the outputs of a {@link Result}. */
  static Iterator<RawUnionValue> decode(byte[] outputs, Coder<RawUnionValue> coder)
      throws IOException {
    ByteArrayInputStream stream = new ByteArrayInputStream(outputs);
    List<RawUnionValue> decoded = new ArrayList<>();
    while (stream.available() > 0) {
      decoded.add(coder.decode(stream));
    }
    return decoded.iterator();
  }

  /** What a task gives to the driver, all of it or nothing. */
  static class Result implements Serializable {
    private final byte[] outputs;
    private final List<byte[]> residuals = new ArrayList<>();
    private final String held;
    private final String executor;

    Result(byte[] outputs, List<DelayedBundleApplication> residuals, String held) {
      this.outputs = outputs;
      residuals.forEach(residual -> this.residuals.add(residual.toByteArray()));
      this.held = held;
      SparkEnv env = SparkEnv.get();
      this.executor =
          String.format(
              "executor_%s_%s", env.blockManager().blockManagerId().host(), env.executorId());
    }

    byte[] outputs() {
      return outputs;
    }

    List<DelayedBundleApplication> residuals() throws InvalidProtocolBufferException {
      List<DelayedBundleApplication> decoded = new ArrayList<>();
      for (byte[] residual : residuals) {
        decoded.add(DelayedBundleApplication.parseFrom(residual));
      }
      return decoded;
    }

    /** By which {@link HeldBundles} finds the bundles of the task; empty if it holds none. */
    String held() {
      return held;
    }

    /** How Spark names the executor of the task as a place for others. */
    String executor() {
      return executor;
    }
  }
}
