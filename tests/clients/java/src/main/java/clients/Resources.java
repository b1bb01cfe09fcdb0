package clients;

import static clients.Bench.check;
import static clients.Bench.codeOf;
import static clients.Bench.numbered;

import com.google.api.gax.rpc.StatusCode;
import com.google.protobuf.Duration;
import com.google.protobuf.FieldMask;
import com.google.pubsub.v1.DetachSubscriptionRequest;
import com.google.pubsub.v1.ListSubscriptionsRequest;
import com.google.pubsub.v1.ListTopicsRequest;
import com.google.pubsub.v1.RetryPolicy;
import com.google.pubsub.v1.Subscription;
import com.google.pubsub.v1.Topic;
import com.google.pubsub.v1.UpdateSubscriptionRequest;
import com.google.pubsub.v1.UpdateTopicRequest;
import java.util.HashSet;
import java.util.Set;
import java.util.concurrent.atomic.AtomicReference;

/** Cases about topics and subscriptions themselves. */
final class Resources {
  private Resources() {}

  /** Topics and subscriptions are made, read, listed, changed and deleted. */
  static void resources(Bench bench) throws Exception {
    String topic = bench.topicName("resources");
    String name = bench.subscriptionName("resources");
    bench.create("resources", s -> s.putLabels("team", "a"));
    check(
        codeOf(() -> bench.topics.createTopic(topic)) == StatusCode.Code.ALREADY_EXISTS,
        "a second topic of the same name");
    Topic changed =
        bench.topics.updateTopic(
            UpdateTopicRequest.newBuilder()
                .setTopic(Topic.newBuilder().setName(topic).putLabels("k", "v"))
                .setUpdateMask(FieldMask.newBuilder().addPaths("labels"))
                .build());
    check("v".equals(changed.getLabelsMap().get("k")), "the changed topic is " + changed);
    bench.subscriptions.updateSubscription(
        UpdateSubscriptionRequest.newBuilder()
            .setSubscription(
                Subscription.newBuilder()
                    .setName(name)
                    .setAckDeadlineSeconds(30)
                    .setRetryPolicy(RetryPolicy.newBuilder().setMinimumBackoff(Duration.newBuilder().setSeconds(1))))
            .setUpdateMask(FieldMask.newBuilder().addPaths("ack_deadline_seconds").addPaths("retry_policy"))
            .build());
    Subscription read = bench.subscriptions.getSubscription(name);
    check(
        read.getAckDeadlineSeconds() == 30
            && "a".equals(read.getLabelsMap().get("team"))
            && read.getRetryPolicy().getMinimumBackoff().getSeconds() == 1,
        "the changed subscription is " + read);
    Set<String> listed = listed(bench);
    check(listed.contains(topic) && listed.contains(name), "only these are listed: " + listed);
    Set<String> below = new HashSet<>();
    bench.topics.listTopicSubscriptions(topic).iterateAll().forEach(below::add);
    check(below.equals(Set.of(name)), "the topic's subscriptions are " + below);
    bench.topics.deleteTopic(topic);
    check(
        bench.subscriptions.getSubscription(name).getTopic().equals("_deleted-topic_"),
        "the subscription still has a topic");
    bench.subscriptions.deleteSubscription(name);
  }

  /** The names of all topics and subscriptions, listed one a page. */
  private static Set<String> listed(Bench bench) {
    String project = "projects/" + bench.project;
    Set<String> found = new HashSet<>();
    bench
        .topics
        .listTopics(ListTopicsRequest.newBuilder().setProject(project).setPageSize(1).build())
        .iterateAll()
        .forEach(topic -> found.add(topic.getName()));
    bench
        .subscriptions
        .listSubscriptions(ListSubscriptionsRequest.newBuilder().setProject(project).setPageSize(1).build())
        .iterateAll()
        .forEach(subscription -> found.add(subscription.getName()));
    return found;
  }

  /** What does not exist is NOT_FOUND, in every call. */
  static void missing(Bench bench) throws Exception {
    Bench.Call[] calls = {
      () -> bench.topics.getTopic(bench.topicName("nowhere")),
      () -> bench.subscriptions.getSubscription(bench.subscriptionName("nowhere")),
      () -> bench.publish("nowhere", numbered(1)),
      () -> bench.receive("nowhere", 1, (message, reply) -> true),
    };
    for (int i = 0; i < calls.length; i++) {
      StatusCode.Code code = codeOf(calls[i]);
      check(code == StatusCode.Code.NOT_FOUND, "call " + i + " answered " + code);
    }
  }

  /** A detached subscription says so and its receiver ends. */
  static void detach(Bench bench) throws Exception {
    bench.create("detach", s -> s);
    bench.publish("detach", numbered(1));
    AtomicReference<Exception> refused = new AtomicReference<>();
    StatusCode.Code code =
        codeOf(
            () ->
                bench.receive(
                    "detach",
                    2,
                    (message, reply) -> {
                      reply.ack();
                      try {
                        bench.topics.detachSubscription(
                            DetachSubscriptionRequest.newBuilder()
                                .setSubscription(bench.subscriptionName("detach"))
                                .build());
                      } catch (Exception error) {
                        refused.set(error);
                      }
                      return true;
                    }));
    check(refused.get() == null, "detaching: " + refused.get());
    check(code == StatusCode.Code.FAILED_PRECONDITION, "the receiver ended with " + code);
    check(
        bench.subscriptions.getSubscription(bench.subscriptionName("detach")).getDetached(),
        "the subscription is not detached");
  }
}
