package clients;

import static clients.Bench.COUNT;
import static clients.Bench.check;
import static clients.Bench.number;
import static clients.Bench.numbered;

import com.google.cloud.pubsub.v1.AckResponse;
import com.google.cloud.pubsub.v1.Subscriber;
import com.google.protobuf.ByteString;
import com.google.protobuf.Timestamp;
import com.google.pubsub.v1.DeadLetterPolicy;
import com.google.pubsub.v1.PubsubMessage;
import com.google.pubsub.v1.SeekRequest;
import java.time.Duration;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;

/** Cases about messages: the same as in the other languages, each named in the runner. */
final class Cases {
  private Cases() {}

  /** Every case by its name, in the order in which they run. */
  static Map<String, Main.Case> all() {
    Map<String, Main.Case> cases = new LinkedHashMap<>();
    cases.put("resources", Resources::resources);
    cases.put("missing", Resources::missing);
    cases.put("plain", Cases::plain);
    cases.put("large", Cases::large);
    cases.put("nack", Cases::nack);
    cases.put("ordering", Cases::ordering);
    cases.put("filter", Cases::filter);
    cases.put("dead_letter", Cases::deadLetter);
    cases.put("exactly_once", Cases::exactlyOnce);
    cases.put("recycling", Cases::recycling);
    cases.put("seek", Cases::seek);
    cases.put("detach", Resources::detach);
    cases.put("lease", Cases::lease);
    cases.put("relay", Cases::relay);
    return cases;
  }

  /** Binary bodies and attributes of any text arrive as they were, each once. */
  private static void plain(Bench bench) throws Exception {
    bench.create("plain", s -> s);
    List<PubsubMessage> sent =
        numbered(
            COUNT,
            i -> {
              byte[] body = new byte[300];
              for (int j = 0; j < body.length; j++) {
                body[j] = (byte) (i + 7 * j);
              }
              return PubsubMessage.newBuilder()
                  .setData(ByteString.copyFrom(body))
                  .putAllAttributes(Map.of("n", String.valueOf(i), "имя", "значение", "名前", "値 🎈", "empty", ""));
            });
    bench.publish("plain", sent);
    Set<String> seen = ConcurrentHashMap.newKeySet();
    bench.receive(
        "plain",
        COUNT,
        (message, reply) -> {
          reply.ack();
          String n = message.getAttributesOrThrow("n");
          PubsubMessage expected = sent.get(Integer.parseInt(n));
          check(expected.getData().equals(message.getData()), "body " + n + " changed");
          check(expected.getAttributesMap().equals(message.getAttributesMap()), "attributes " + n + " changed");
          long age = System.currentTimeMillis() / 1000 - message.getPublishTime().getSeconds();
          check(Math.abs(age) < 60, "published " + age + " s ago");
          seen.add(n);
          return true;
        });
    check(seen.size() == COUNT, seen.size() + " of " + COUNT + " came");
  }

  /** More than the 4 MiB of one response, and a request that the client compressed. */
  private static void large(Bench bench) throws Exception {
    bench.create("large", s -> s);
    List<PubsubMessage> sent =
        numbered(
            12,
            i -> {
              byte[] body = new byte[900_000];
              Arrays.fill(body, (byte) i);
              return PubsubMessage.newBuilder().setData(ByteString.copyFrom(body));
            });
    bench.publish("large", sent, p -> p.setEnableCompression(true));
    Map<ByteString, Integer> seen = bench.receiveAll("large", sent.size());
    check(
        sent.stream().allMatch(message -> seen.getOrDefault(message.getData(), 0) == 1),
        "a body came not once or changed");
  }

  /** What is given back comes again. */
  private static void nack(Bench bench) throws Exception {
    bench.create("nack", s -> s);
    bench.publish("nack", numbered(COUNT));
    Map<String, Integer> deliveries = new ConcurrentHashMap<>();
    bench.receive(
        "nack",
        2 * COUNT,
        (message, reply) -> {
          if (deliveries.merge(message.getMessageId(), 1, Integer::sum) == 1) {
            reply.nack();
          } else {
            reply.ack();
          }
          return true;
        });
    check(deliveries.size() == COUNT, deliveries.size() + " messages came twice");
  }

  /** Each key's messages come in order; one that is given back comes again with all that follow it. */
  private static void ordering(Bench bench) throws Exception {
    int keys = 10;
    int given = 5;
    bench.create("ordering", s -> s.setEnableMessageOrdering(true));
    bench.publish(
        "ordering",
        numbered(COUNT, i -> number(i / keys).setOrderingKey("key-" + i % keys)),
        p -> p.setEnableMessageOrdering(true));
    Map<String, Integer> next = new HashMap<>();
    Set<String> nacked = new HashSet<>();
    bench.receive(
        "ordering",
        COUNT,
        (message, reply) -> {
          synchronized (next) {
            String key = message.getOrderingKey();
            int place = Integer.parseInt(message.getData().toStringUtf8());
            int expected = next.getOrDefault(key, 0);
            if (place == given && nacked.add(key)) {
              reply.nack();
              return false;
            }
            reply.ack();
            if (place == expected) {
              next.put(key, place + 1);
              return true;
            }
            // What the client held already still comes between the nack and its redelivery.
            boolean held = place > expected && expected == given && nacked.contains(key);
            check(held, place + " of " + key + " came when " + expected + " was due");
            return false;
          }
        });
  }

  /** Only what has the attribute comes. */
  private static void filter(Bench bench) throws Exception {
    bench.create("filter", s -> s.setFilter("attributes:k"));
    bench.publish("filter", numbered(COUNT, i -> number(i).putAttributes(i % 2 == 0 ? "k" : "other", "v")));
    Map<ByteString, Integer> seen = bench.receiveAll("filter", COUNT / 2);
    check(
        seen.keySet().stream().allMatch(body -> Integer.parseInt(body.toStringUtf8()) % 2 == 0),
        "one without the attribute k came");
  }

  /** After five nacks a message goes to the dead-letter topic, with the attributes that say so. */
  private static void deadLetter(Bench bench) throws Exception {
    bench.create("dead", s -> s);
    DeadLetterPolicy policy =
        DeadLetterPolicy.newBuilder().setDeadLetterTopic(bench.topicName("dead")).setMaxDeliveryAttempts(5).build();
    bench.create("dying", s -> s.setDeadLetterPolicy(policy));
    bench.publish("dying", numbered(3));
    Map<String, String> attempts = new ConcurrentHashMap<>();
    bench.receive(
        "dying",
        15,
        (message, reply) -> {
          attempts.merge(
              message.getMessageId(), String.valueOf(Subscriber.getDeliveryAttempt(message)), String::concat);
          reply.nack();
          return true;
        });
    check(attempts.values().stream().allMatch("12345"::equals), "delivery attempts were " + attempts.values());
    bench.receive(
        "dead",
        3,
        (message, reply) -> {
          reply.ack();
          Map<String, String> attributes = message.getAttributesMap();
          check(
              "dying".equals(attributes.get("CloudPubSubDeadLetterSourceSubscription"))
                  && "5".equals(attributes.get("CloudPubSubDeadLetterSourceDeliveryCount")),
              "attributes of a dead letter: " + attributes);
          return true;
        });
  }

  /** With ordering, too, every ack is confirmed, and what was acked does not come again when streams end. */
  private static void exactlyOnce(Bench bench) throws Exception {
    bench.create("once", s -> s.setEnableExactlyOnceDelivery(true).setEnableMessageOrdering(true));
    bench.publish(
        "once",
        numbered(COUNT, i -> number(i).setOrderingKey("key-" + i % 20)),
        p -> p.setEnableMessageOrdering(true));
    Set<ByteString> seen = ConcurrentHashMap.newKeySet();
    bench.receive(
        "once",
        COUNT,
        (message, reply) -> {
          AckResponse answer = reply.ack().get(20, TimeUnit.SECONDS);
          check(answer == AckResponse.SUCCESSFUL, "an ack ended with " + answer);
          synchronized (seen) {
            if (seen.add(message.getData()) && seen.size() == COUNT / 2) {
              System.out.println("RECYCLE " + bench.subscriptionName("once"));
            }
          }
          return true;
        });
    check(seen.size() == COUNT, seen.size() + " of " + COUNT + " came");
  }

  /** Streams that the service ends lose nothing. */
  private static void recycling(Bench bench) throws Exception {
    int all = 5 * COUNT;
    bench.create("recycling", s -> s);
    Thread publishing =
        new Thread(
            () -> {
              try {
                for (int i = 0; i < all; i += 10) {
                  int from = i;
                  bench.publish("recycling", numbered(10, j -> number(from + j)));
                }
              } catch (Exception error) {
                error.printStackTrace();
              }
            });
    publishing.start();
    Set<ByteString> seen = ConcurrentHashMap.newKeySet();
    bench.receive(
        "recycling",
        all,
        (message, reply) -> {
          reply.ack();
          synchronized (seen) {
            if (!seen.add(message.getData())) {
              return false;
            }
            if (seen.size() % COUNT == COUNT / 2) {
              System.out.println("RECYCLE " + bench.subscriptionName("recycling"));
            }
            return true;
          }
        });
    publishing.join();
  }

  /** What was acked comes again after a seek back; nothing comes after a seek forward. */
  private static void seek(Bench bench) throws Exception {
    bench.create("seek", s -> s.setRetainAckedMessages(true));
    bench.publish("seek", numbered(COUNT));
    for (int round = 0; round < 2; round++) {
      int came = bench.receiveAll("seek", COUNT).size();
      check(came == COUNT, came + " of " + COUNT + " came");
      seekTo(bench, -60);
    }
    seekTo(bench, 60);
    int left = bench.subscriptions.pull(bench.subscriptionName("seek"), 10).getReceivedMessagesCount();
    check(left == 0, left + " messages after a seek forward");
  }

  private static void seekTo(Bench bench, int offsetSeconds) {
    bench.subscriptions.seek(
        SeekRequest.newBuilder()
            .setSubscription(bench.subscriptionName("seek"))
            .setTime(Timestamp.newBuilder().setSeconds(System.currentTimeMillis() / 1000 + offsetSeconds))
            .build());
  }

  /** A handler that outlives the deadline keeps its message, because the client extends it. */
  private static void lease(Bench bench) throws Exception {
    bench.create("lease", s -> s);
    bench.publish("lease", numbered(1));
    Duration deadline = Duration.ofSeconds(10);
    AtomicInteger deliveries = new AtomicInteger();
    bench.receive(
        "lease",
        1,
        (message, reply) -> {
          deliveries.incrementAndGet();
          Thread.sleep(12_000);
          reply.ack();
          return true;
        },
        s -> s.setMaxDurationPerAckExtensionDuration(deadline));
    check(deliveries.get() == 1, "the message was delivered " + deliveries.get() + " times");
  }

  /** A message that is due in a second comes through the relay at its time. */
  private static void relay(Bench bench) throws Exception {
    long due = System.currentTimeMillis() + 1000;
    PubsubMessage later =
        PubsubMessage.newBuilder()
            .setData(ByteString.copyFromUtf8("later"))
            .putAttributes("available_at", String.format("%d.%03d", due / 1000, due % 1000))
            .putAttributes("имя", "значение")
            .build();
    bench.publish(bench.relayTopic, List.of(later));
    bench.receive(
        bench.relaySubscription,
        1,
        (message, reply) -> {
          reply.ack();
          long late = System.currentTimeMillis() - due;
          Map<String, String> attributes = message.getAttributesMap();
          long own = attributes.keySet().stream().filter(key -> key.startsWith("scheduler-")).count();
          check(late >= 0 && late <= 2000, "came " + late + " ms late");
          check(own == 5 && "значение".equals(attributes.get("имя")), "attributes are " + attributes);
          check(message.getData().equals(later.getData()), "the body changed");
          return true;
        });
  }
}
