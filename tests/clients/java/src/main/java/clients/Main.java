package clients;

import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Map;

/**
 * Uses the local Pub/Sub through Google's Java library, unmodified, and says what held.
 *
 * <p>Usage: Main PROJECT RELAY_TOPIC RELAY_SUBSCRIPTION, with PUBSUB_EMULATOR_HOST set. It prints a line per case,
 * "PASS name" or "FAIL name: why", and "RECYCLE subscription" when it wants the streams of a subscription ended.
 */
public final class Main {
  private Main() {}

  public static void main(String[] arguments) throws Exception {
    System.setOut(new PrintStream(System.out, true, StandardCharsets.UTF_8));
    if (arguments.length != 3) {
      System.err.println("usage: Main PROJECT RELAY_TOPIC RELAY_SUBSCRIPTION");
      System.exit(2);
    }
    boolean failed = false;
    try (Bench bench = new Bench(arguments[0], arguments[1], arguments[2])) {
      Idle idle = new Idle(arguments[0]);
      Map<String, Case> cases = Cases.all();
      cases.put("idle", unused -> idle.outcome());
      for (Map.Entry<String, Main.Case> one : cases.entrySet()) {
        try {
          one.getValue().run(bench);
          System.out.println("PASS " + one.getKey());
        } catch (Exception error) {
          failed = true;
          System.out.println("FAIL " + one.getKey() + ": " + String.valueOf(error).lines().findFirst().orElse(""));
        }
      }
    }
    System.exit(failed ? 1 : 0);
  }

  /** One thing that must hold. */
  interface Case {
    void run(Bench bench) throws Exception;
  }
}
