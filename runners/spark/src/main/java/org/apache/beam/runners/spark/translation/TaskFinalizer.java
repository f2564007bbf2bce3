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

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentMap;
import org.apache.beam.runners.fnexecution.control.InstructionRequestHandler;
import org.apache.spark.SparkEnv;
import org.apache.spark.TaskContext;
import org.apache.spark.util.TaskCompletionListener;
import org.apache.spark.util.TaskFailureListener;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Finalizes the bundles of a task when the output of the task is complete.
 *
 * <p>Until then Spark may throw the output away and run the task anew, and what a bundle read must
 * not be acknowledged. So bundles are finalized after the task has succeeded, and if it fails, or
 * is killed, none of them is. Of attempts at one task that run side by side, the driver lets one
 * finalize; it is asked as those are who commit files.
 *
 * <p>Not promised: Spark may later lose the output of a task that has succeeded, with the machine
 * that keeps it, and run the task once more. Its bundles are then other ones, and are finalized
 * too. A bundle whose worker is gone is not finalized.
 */
class TaskFinalizer {

  private static final Logger LOG = LoggerFactory.getLogger(TaskFinalizer.class);
  private static final ConcurrentMap<TaskContext, TaskFinalizer> FINALIZERS =
      new ConcurrentHashMap<>();

  private final List<FinishedBundle> bundles = new ArrayList<>();
  private final List<AutoCloseable> open = new ArrayList<>();
  private boolean failed = false;

  private TaskFinalizer() {}

  /** The one of a task, for all stages that the task runs. */
  static TaskFinalizer of(TaskContext task) {
    TaskFinalizer known = FINALIZERS.get(task);
    return known == null ? begin(task) : known;
  }

  private static TaskFinalizer begin(TaskContext task) {
    TaskFinalizer finalizer = new TaskFinalizer();
    FINALIZERS.put(task, finalizer);
    // Spark tells of a failure before it tells of the end.
    task.addTaskFailureListener((TaskFailureListener) (failing, e) -> finalizer.failed = true);
    task.addTaskCompletionListener(
        (TaskCompletionListener)
            ended -> {
              FINALIZERS.remove(ended);
              finalizer.end(ended);
            });
    return finalizer;
  }

  /** Finalizes a bundle when the task has succeeded. */
  void add(InstructionRequestHandler worker, String bundleId) {
    bundles.add(new FinishedBundle(worker, bundleId));
  }

  /**
   * Closes what the worker of a bundle needs, when the task has ended and bundles are finalized.
   */
  void closeAtEnd(AutoCloseable needed) {
    open.add(needed);
  }

  /** Throws nothing: for Spark the task has done its work, and must not fail. */
  private void end(TaskContext task) {
    try {
      if (!failed && !bundles.isEmpty() && mayCommit(task)) {
        FinishedBundle.finalizeAll(bundles);
      }
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
    } catch (RuntimeException e) {
      LOG.warn("Bundles of {} were not finalized", task, e);
    } finally {
      open.forEach(FinishedBundle::letGo);
    }
  }

  /** Whether no other attempt at this task has finalized, or will. */
  private static boolean mayCommit(TaskContext task) {
    return SparkEnv.get()
        .outputCommitCoordinator()
        .canCommit(
            task.stageId(), task.stageAttemptNumber(), task.partitionId(), task.attemptNumber());
  }
}
