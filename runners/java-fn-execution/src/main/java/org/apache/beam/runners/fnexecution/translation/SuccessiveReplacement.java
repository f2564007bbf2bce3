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
package org.apache.beam.runners.fnexecution.translation;

import org.apache.beam.model.pipeline.v1.RunnerApi.Components;
import org.apache.beam.model.pipeline.v1.RunnerApi.ComponentsOrBuilder;
import org.apache.beam.model.pipeline.v1.RunnerApi.MessageWithComponents;
import org.apache.beam.sdk.util.construction.graph.ProtoOverrides.TransformReplacement;
import org.checkerframework.checker.nullness.qual.Nullable;

/**
 * A replacement of many transforms, each of which sees what was put in the place of those before.
 *
 * <p>{@code ProtoOverrides} shows the pipeline as it was to each replacement, and adds what they
 * make to one result. Ids that a replacement took because they were free are so given twice, and
 * the later component overwrites the earlier. Splittable DoFns that read one PCollection got one
 * PCollection of restrictions, and those with inputs of one coder a coder of restrictions that is
 * only right for the last.
 *
 * <p>For one pass over one pipeline; not for several threads.
 */
public final class SuccessiveReplacement implements TransformReplacement {

  private final TransformReplacement replacement;
  private @Nullable ComponentsOrBuilder original;
  private Components.Builder known = Components.newBuilder();

  private SuccessiveReplacement(TransformReplacement replacement) {
    this.replacement = replacement;
  }

  /** Lets a replacement see its own work. */
  public static SuccessiveReplacement of(TransformReplacement replacement) {
    return new SuccessiveReplacement(replacement);
  }

  @Override
  public @Nullable MessageWithComponents getReplacement(
      String transformId, ComponentsOrBuilder existing) {
    if (existing != original) {
      // One copy a pipeline: it is asked for each ParDo, and most are left as they are.
      original = existing;
      known =
          existing instanceof Components
              ? ((Components) existing).toBuilder()
              : ((Components.Builder) existing).clone();
    }
    MessageWithComponents replaced = replacement.getReplacement(transformId, known);
    if (replaced != null) {
      known.mergeFrom(replaced.getComponents());
    }
    return replaced;
  }
}
