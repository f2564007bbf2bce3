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

import java.io.ByteArrayInputStream;
import java.io.InputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Base64;
import java.util.zip.GZIPInputStream;
import org.apache.flink.runtime.checkpoint.OperatorSubtaskState;
import org.apache.flink.streaming.util.OperatorSnapshotUtil;

/**
 * What the released operator of Beam 2.70.0 wrote when it was driven as {@link SplitStateTest}
 * does, with the element as the key: the splits 100, 200 and 300, and two records read of each.
 */
class ReleasedSnapshot {

  private static final String GZIPPED =
      ""
          + "H4sIAAAAAAACA+2be3Ab1RXG78pax47tWE5McIgc7NRJ7IBWD8u2HOdhxZYTxZIsW7LzIImykla2bEkrdld2"
          + "QknCo0BLgGGAtikzDAXSlNLAMC0daCkthQ6QlHaYQCmlL8ofbacBhnQo8Eehvas9lu1EMYY5TAnIM/Zn7+O3"
          + "V3u/c/ZbeUUIKSLwxejVH6QqnElFE4IpnInFBMmk8MPaWtJgjVktPN9uMVl4i8Nkt9lspnAsYjXF2mPhNnub"
          + "YGsOhwnRP0a3Lj4nicl+1/X5XQPOYN9AKBB0Bl2hbncgOODeOBh09/lC3r5uFzEE/B53cGqFK7ufYcjpGXSF"
          + "Aq4Bt9Pj3uEaoEt1pF+Uhjk+zUdGBC4s8ElOyqRSgiRzsUQ8NcYpEp+SE7wSF1Ocsi8tyNxgapyupn8L0SBd"
          + "EBCkOJ+IXyFIgRSflkdERRto0alrAj6n37+d5AZOin73lYq39x17k7CyRLo+7oG7xKggzTxk9Pajl71+7boq"
          + "HdHtIPNjvKwIUpeY3uchbETdWiHLPfQwZu0wZmbYYJajY2a2tkQ2dzEDho69ErHX3lR60Min41xETCYrDlRn"
          + "lHhC5lr30zGXMo2MjpC9aUIHvLW2hxkbPUkMExKfTjNv7pUViY47nhrmusWeVF9akHhFlBqC/PCwEO0dZ+/d"
          + "/LdTT64xndp4XEcYDymLR+WgyNY0yAqp9Izy47yZubvc7OXTzPNk9frrSTkdG1d6upELKFImomQkIVrqrPn5"
          + "wgW/fam1inmqRCJ1o+2ENRvfXd65dfC9x65lzIY0Hdie9Vayc1xIRUWJG85QLjfebAtZQ7bQqCTUb6nmhkVx"
          + "OMGW1Q9ui4iJhBBROHcymVH4cELYGKfHb2j5gyHaI0rJJp76mLmcHmn3hyLhRJJKkkadh+jHhH101AubQlcl"
          + "+NSwuS88SikdHlI8zicygnw5OUDK9qYzEll0GbuKcAz9rlhlvPU32+42yE0J5vG6tOoAOtaq+mOlK/3ulCIM"
          + "C9LC17995L2rb3DQ0+MmLLutnE6HYUmj3ZdJhgXp+mNfry2747VDVV49yTD7SUXFVtK5voapP816GmVua5y+"
          + "4AkhOsT+0NDQk0kkbIvIilccZOJ71Ydb6/5DLUFP+QTbzC5hYuX09JeXLiLykmr1GGuPjpMeiRhfOJI+Yib+"
          + "C10nyXz2WO0uZsJQTMe43Bch3hPJpcZR8sSPa+870co+Xl5Cz8CSTcSzezthQiWLZelAU1ENnfpBJeZg+42e"
          + "iv21v2J+faT+anruVo4eJtVORUzGI2yL8dk3fvT8dYq/h2lhFOZFsmq0g9QM8ZJHTA2za407Ey8/7f3QG+fW"
          + "ktQEMXSLmXCiqbvmtpFl83Y9dbvLRId0ER1Sh2+CEOWecHWMzpLMNf21TrXdpoQY5r0N+oaue+qMzVc+8E71"
          + "shue5g6RVFRPuuKvltDaYTcYb3n2/UeXxrmHmQ10bJf6vkZMLza6aaGo0++Jj5WeMO7amao/ffOpshV/MpYL"
          + "CSEppBR2kHnF+S0Sr2gu9/FJofWhIn1Aqf8F6VihI8WM2V6vkPldmpnoUUiuD5bDL1dpwvlA7wB9VVNzHWgM"
          + "9BjovzS1OEAPgP5SU+t8UD/oN0D/qKltOegI6EOg72javAYUxtf8jKZ2GLd9APQw6J81bWkAHQV9GPRdTVvX"
          + "gl4D+pymbQtAg6B3gr6mqWMlaAL0B6Dva9rxoaZru0FvBH1B03WLQXeC3gv6D03Xc6AK6E803QDTtKEH9CbQ"
          + "k5p21oDuBj0C+k9NnRbQcdCfarpRB7oZ9BbQlzTtugh0D+hR0Dc07baB7gX9maYuPegW0FtBX9a0xwgaBr0f"
          + "9C1NN9lBrwB9UtPNxaAe0NtAX9HUvQw0CvoA6NuabmkFvRL0KU17S0DB/73g/17wvwf87wH/e8D/HvC/F/zv"
          + "Bf97wf8+8L8P/O8D//vA/33g/z7wfx/4vw/87wf/+8H/fvB/P/i/H/zfD/7vB/8PgP8HwP8D4P8B8H8A/B8A"
          + "/weeo5knGnEIdl6wmGJ2vs1kd7RaTI5opNUUsdnbHTFrW0xwCIQEF2iZRw0jgWmZQIsB6nVZvVRmM4B2ZaY5"
          + "QYknBW5IvfRMZYGGM/6eFkd09FI2a9jgo3yadkSuR/2rV9hHykh1OiOPCFFTmI+MmaApypNdjhh6Xdtd3RDA"
          + "gtv9LqL30LSVPVb+nOXM+9LUyAEBR3txYV4WOE9cVvK+kCJS8XctaVZv/SCXqz6tCKd79OwIp7vvdMn5G+E6"
          + "1Qjn59ScpQWXaSmiMpci2EP5UoRRDTl5c0TdZI7QMSE1SNh2EbLat4s0rZ8e5dhmowxZrr7ynFlu+aiV6Gl2"
          + "bM6FjxUXZ8MHu9hk3PgEYWr0xTJTXFJKE8hxkieBMHfOmkCyAWcuGeR+I2SQQ1UdhopcBOH7IIK4XQ25CJJw"
          + "L6YZhK/IZZAqP/NsSq+r1hIC/518KcS7bi4ppL7P+YGaQvaoKYQmUC03Z0MoPbV0BB1N+2gcqZ4ZR6p9Tq8r"
          + "4Hd2nVWGQ2eV4WQ7kRVeoU1FjEfVQ8l0kxnNJf/yGbW5UI7GQhQcGUuL8ZSyxrrGMkvDYLNtYpaOUSjrQlkX"
          + "ynpuZX3X3C2bvXtXV03dvmuln734B9Rf1dtTKcUn5IapZbnip/FgWl+YuUHgnN2BQG11nDlQ1bTZ4WnnfyJr"
          + "3Kkp0IzckK2wyWlQfS+R1flI2dqSp9kzu+OkQbUd62bZMbv5pHe1+jqzq9nW2ApdrdDVCl2t0NU+R13NWuhq"
          + "ha5W6GqFrvY5y2rWQlcrdLVCVyt0tfO4q1VO0BcnJXlpzDQiJqKzvQtf5HX6Z2lonR/jTXgvn57ze/A6EvwY"
          + "ZM1f06bwzAUzjvZpNWHGdXYTZqzfLzrPmrBlqgmvEqXWk/AUxZiRc6doVdFSl4xl9sOdj3T89xmmPdvCWkmN"
          + "1sK6mO86JnsYWHq0hTRO8y7Tnuutpe3QWS0z3flZea+5cKUvXOkLV/rClf7zdf9S+A9aoasVulqhq53PXW1B"
          + "WkhF6YBMavaTCrcvOLcvN+a5fRl/6zy+fVkrSkMniSciSgIXVJ0yVURsZXk3r/DsdcEhW8dRS6988yO/154p"
          + "19zOLq3LNmHV1Ot3wy3Q8XM02WwjzN9kO3xW0jitlkrvapxWSOyDtJnV+zqnV5F6WPb/dA9UG8oWVChLMgvj"
          + "tC+G1JnW6oxMfTyDmXM9TXU0dcJEeKRf1uZj1nrSzainz8yDjIXy+wKU3/IZhZCWxIggy3TPQjUUquGLVw3q"
          + "l/b4fSmZnI9J92tr52V/ah8pKCZTX9qHF+bn6gSDokOhFKFQ9CgUFoVSjEKZh0IpQaGUolDmo1DKUCjlKJQK"
          + "FMoCFEolCsWAQqlCoSxEoSxCoVSjUC5AoSxGoVyIQqlBoSxBoVyEQlmKQjGiUGpRKMtQKBejUOpQKPUolOUo"
          + "lC+hUBpQKCtQKCtRKKuyFIbMK5bFjBQRVMjiS85+4t5szvscvs5svoow95oO/lv7QKf+m89V+gf6ulyBgNu3"
          + "KRR0e115aNa8NOs02gVZWlFV4xxolrw0yzRacZbG3PjVM2nTTh5TZDZPnoSDf+mI7jAeU1cylbBM2PB2Lgp/"
          + "9NYP6nKbT83GR+0Uy+2jn8PWJ5jc5sVz2Pz41OZTPvionR6aehmqYYrgfM6b3OcTnnZYv/jcmDl5Adb3nxsz"
          + "J4PSpY0otdSEQlmNQrkEhXIpCsWEQuFQKGYUigWFYkWh2FAozSgUOwqlBYXSikJpQ6E4UCjtKJQ1KJQOFMpa"
          + "FMo6FMp6FMoGFEonCsWJQtmIQulCoXSjUFwolB4UyiYUymYUihuFsgWF0otC8aBQvCgUHwqlD4XiR6H0o1AG"
          + "UCgBFEoQhTKIQhlCoWxFoWxDoWxHoexAoVyGQtmJQtmFQtmNQgmhUPagUHgUShiFEkGhRFEoAgolhkIZRqGM"
          + "oFDiKJRRFMoYCiWBQkmiUFIoFBGFkkahXI5CkVAoMgpFQaFkUCjjKJQJFMpeFMo+FMoVKJQvo1CuRKHsR6Ec"
          + "QKEcRKA08I6o3dIcazVZ29vsJrsl7DA5hJjFFGuPtEcskbZYi6V1csf/AUPa292FXQAA";

  /** Reads it, as one of a job of parallelism 1. */
  static OperatorSubtaskState read() throws Exception {
    Path file = Files.createTempFile("released", ".snapshot");
    try (InputStream in =
        new GZIPInputStream(new ByteArrayInputStream(Base64.getDecoder().decode(GZIPPED)))) {
      Files.write(file, in.readAllBytes());
      return OperatorSnapshotUtil.readStateHandle(file.toString());
    } finally {
      Files.delete(file);
    }
  }

  private ReleasedSnapshot() {}
}
