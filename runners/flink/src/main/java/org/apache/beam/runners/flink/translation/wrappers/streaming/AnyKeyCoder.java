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

import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import org.apache.beam.sdk.coders.AtomicCoder;
import org.apache.beam.vendor.guava.v32_1_2_jre.com.google.common.io.ByteStreams;

/**
 * Takes the bytes of a key as they are: all that there are.
 *
 * <p>The keys of splittable stages mean nothing, and older releases made them of elements, by any
 * coder. Nothing may follow such a key in a stream.
 */
public class AnyKeyCoder extends AtomicCoder<byte[]> {

  private static final AnyKeyCoder INSTANCE = new AnyKeyCoder();

  private AnyKeyCoder() {}

  public static AnyKeyCoder of() {
    return INSTANCE;
  }

  @Override
  public void encode(byte[] key, OutputStream out) throws IOException {
    out.write(key);
  }

  @Override
  public byte[] decode(InputStream in) throws IOException {
    return ByteStreams.toByteArray(in);
  }

  @Override
  public void verifyDeterministic() {}
}
