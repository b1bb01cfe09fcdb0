package clients;

import static clients.Bench.check;

import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;

/**
 * A receiver without messages keeps its streams, and gets the first message that comes. It takes a minute and a channel
 * of its own, and runs beside the other cases.
 */
final class Idle {
  private static final long SETTLED_MS = 5_000;

  /** Longer than the library waits for an answer to its pings: every 30 s, 15 s, looked at every 10 s. */
  private static final long IDLE_MS = 60_000;

  private final ExecutorService threads = Executors.newFixedThreadPool(2);
  private final Future<?> whole;

  Idle(String project) {
    whole =
        threads.submit(
            () -> {
              try (Bench bench = new Bench(project, "", "")) {
                run(bench);
              }
              return null;
            });
  }

  /** Waits for its end; throws what went wrong. */
  void outcome() throws Exception {
    whole.get();
    threads.shutdown();
  }

  private void run(Bench bench) throws Exception {
    bench.create("idle", s -> s);
    Future<?> receiving =
        threads.submit(
            () -> {
              bench.receiveAll("idle", 1);
              return null;
            });
    Thread.sleep(SETTLED_MS);
    int before = bench.streams.get();
    Thread.sleep(IDLE_MS);
    int again = bench.streams.get() - before;
    bench.publish("idle", Bench.numbered(1));
    receiving.get();
    check(before > 0 && again == 0, before + " streams were opened, and " + again + " more while idle");
  }
}
