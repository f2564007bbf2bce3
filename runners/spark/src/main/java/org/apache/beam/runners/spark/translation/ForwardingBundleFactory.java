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

import org.apache.beam.runners.fnexecution.control.BundleCheckpointHandler;
import org.apache.beam.runners.fnexecution.control.BundleFinalizationHandler;
import org.apache.beam.runners.fnexecution.control.BundleProgressHandler;
import org.apache.beam.runners.fnexecution.control.InstructionRequestHandler;
import org.apache.beam.runners.fnexecution.control.OutputReceiverFactory;
import org.apache.beam.runners.fnexecution.control.ProcessBundleDescriptors.ExecutableProcessBundleDescriptor;
import org.apache.beam.runners.fnexecution.control.RemoteBundle;
import org.apache.beam.runners.fnexecution.control.StageBundleFactory;
import org.apache.beam.runners.fnexecution.control.TimerReceiverFactory;
import org.apache.beam.runners.fnexecution.state.StateRequestHandler;
import org.checkerframework.checker.nullness.qual.Nullable;

/** Gives the bundles of another factory, until a subclass gives something else. */
abstract class ForwardingBundleFactory implements StageBundleFactory {

  protected final StageBundleFactory factory;

  ForwardingBundleFactory(StageBundleFactory factory) {
    this.factory = factory;
  }

  @Override
  public RemoteBundle getBundle(
      OutputReceiverFactory outputs,
      TimerReceiverFactory timers,
      StateRequestHandler state,
      BundleProgressHandler progress,
      @Nullable BundleFinalizationHandler finalization,
      @Nullable BundleCheckpointHandler checkpoints)
      throws Exception {
    return factory.getBundle(outputs, timers, state, progress, finalization, checkpoints);
  }

  @Override
  public ExecutableProcessBundleDescriptor getProcessBundleDescriptor() {
    return factory.getProcessBundleDescriptor();
  }

  @Override
  public InstructionRequestHandler getInstructionRequestHandler() {
    return factory.getInstructionRequestHandler();
  }

  @Override
  public void close() throws Exception {
    factory.close();
  }
}
