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
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import org.apache.beam.vendor.guava.v32_1_2_jre.com.google.common.util.concurrent.ThreadFactoryBuilder;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Bundles of tasks that have ended on this executor, until the driver has what they gave.
 *
 * <p>Those that the driver does not ask for, since their task was one attempt of several or was
 * killed in its last moment, are let go after a while, and not finalized.
 */
class HeldBundles {

  private static final Logger LOG = LoggerFactory.getLogger(HeldBundles.class);
  private static final long KEPT_SECONDS = 600;
  private static final Map<String, HeldBundles> HELD = new ConcurrentHashMap<>();
  private static final ScheduledExecutorService TIMER =
      Executors.newSingleThreadScheduledExecutor(
          new ThreadFactoryBuilder().setDaemon(true).setNameFormat("HeldBundles").build());

  private final List<FinishedBundle> bundles;
  private final List<AutoCloseable> open;

  private HeldBundles(List<FinishedBundle> bundles, List<AutoCloseable> open) {
    this.bundles = bundles;
    this.open = open;
  }

  /**
   * Holds bundles.
   *
   * @param bundles of one task
   * @param open what their worker needs; it is closed when they are let go
   * @return by which they are found
   */
  static String hold(List<FinishedBundle> bundles, List<AutoCloseable> open) {
    String token = UUID.randomUUID().toString();
    HELD.put(token, new HeldBundles(bundles, open));
    TIMER.schedule(() -> letGo(token), KEPT_SECONDS, TimeUnit.SECONDS);
    return token;
  }

  /** Lets go all that is held on this executor; nothing of it is finalized. */
  static void letGoAll() {
    HELD.keySet().forEach(HeldBundles::letGo);
  }

  private static void letGo(String token) {
    HeldBundles held = HELD.remove(token);
    if (held != null) {
      LOG.warn("Let go {} bundles that were not to be finalized", held.bundles.size());
      held.open.forEach(FinishedBundle::letGo);
    }
  }

  /**
   * Finalizes bundles that are held here, and lets them go. A callback that fails is not tried
   * again.
   *
   * @return those of the tokens that are not known here
   */
  static List<String> finalizeAll(List<String> tokens) throws InterruptedException {
    List<String> unknown = new ArrayList<>();
    List<HeldBundles> found = new ArrayList<>();
    for (String token : tokens) {
      HeldBundles held = HELD.remove(token);
      if (held == null) {
        unknown.add(token);
      } else {
        found.add(held);
      }
    }
    try {
      List<FinishedBundle> bundles = new ArrayList<>();
      found.forEach(held -> bundles.addAll(held.bundles));
      FinishedBundle.finalizeAll(bundles);
    } finally {
      found.forEach(held -> held.open.forEach(FinishedBundle::letGo));
    }
    return unknown;
  }
}
