package clients;

import com.google.api.core.ApiFuture;
import com.google.api.core.ApiFutures;
import com.google.api.core.ApiService;
import com.google.api.gax.core.CredentialsProvider;
import com.google.api.gax.core.NoCredentialsProvider;
import com.google.api.gax.grpc.GrpcTransportChannel;
import com.google.api.gax.rpc.ApiException;
import com.google.api.gax.rpc.FixedTransportChannelProvider;
import com.google.api.gax.rpc.StatusCode;
import com.google.api.gax.rpc.TransportChannelProvider;
import com.google.cloud.pubsub.v1.AckReplyConsumerWithResponse;
import com.google.cloud.pubsub.v1.MessageReceiverWithAckResponse;
import com.google.cloud.pubsub.v1.Publisher;
import com.google.cloud.pubsub.v1.Subscriber;
import com.google.cloud.pubsub.v1.SubscriptionAdminClient;
import com.google.cloud.pubsub.v1.SubscriptionAdminSettings;
import com.google.cloud.pubsub.v1.TopicAdminClient;
import com.google.cloud.pubsub.v1.TopicAdminSettings;
import com.google.common.util.concurrent.MoreExecutors;
import com.google.protobuf.ByteString;
import com.google.pubsub.v1.PubsubMessage;
import com.google.pubsub.v1.Subscription;
import io.grpc.CallOptions;
import io.grpc.Channel;
import io.grpc.ClientCall;
import io.grpc.ClientInterceptor;
import io.grpc.ManagedChannel;
import io.grpc.ManagedChannelBuilder;
import io.grpc.MethodDescriptor;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import java.util.function.IntFunction;
import java.util.function.UnaryOperator;

/** What every case needs: names, resources, publishing, and a receiver that knows when it has enough. */
final class Bench implements AutoCloseable {
  static final int COUNT = 200;

  /** How long a receiver goes on after what it waited for, to see what must not come. */
  private static final long QUIET_MS = 1_000;

  private static final long CASE_S = 90;

  final String project;
  final String relayTopic;
  final String relaySubscription;
  final TopicAdminClient topics;
  final SubscriptionAdminClient subscriptions;
  final AtomicInteger streams = new AtomicInteger();
  private final ManagedChannel channel;
  private final TransportChannelProvider transport;
  private final CredentialsProvider nobody = NoCredentialsProvider.create();

  /** Connects as the library's documentation says for an emulator: it does not read the variable itself. */
  Bench(String project, String relayTopic, String relaySubscription) throws Exception {
    this.project = project;
    this.relayTopic = relayTopic;
    this.relaySubscription = relaySubscription;
    channel = ManagedChannelBuilder.forTarget(System.getenv("PUBSUB_EMULATOR_HOST")).usePlaintext().intercept(counting()).build();
    transport = FixedTransportChannelProvider.create(GrpcTransportChannel.create(channel));
    topics =
        TopicAdminClient.create(
            TopicAdminSettings.newBuilder()
                .setTransportChannelProvider(transport)
                .setCredentialsProvider(nobody)
                .build());
    subscriptions =
        SubscriptionAdminClient.create(
            SubscriptionAdminSettings.newBuilder()
                .setTransportChannelProvider(transport)
                .setCredentialsProvider(nobody)
                .build());
  }

  /** Counts the StreamingPull calls that are opened. */
  private ClientInterceptor counting() {
    return new ClientInterceptor() {
      @Override
      public <Q, A> ClientCall<Q, A> interceptCall(MethodDescriptor<Q, A> method, CallOptions options, Channel next) {
        if ("StreamingPull".equals(method.getBareMethodName())) {
          streams.incrementAndGet();
        }
        return next.newCall(method, options);
      }
    };
  }

  @Override
  public void close() throws Exception {
    topics.close();
    subscriptions.close();
    channel.shutdownNow();
  }

  String topicName(String id) {
    return "projects/" + project + "/topics/" + id;
  }

  String subscriptionName(String id) {
    return "projects/" + project + "/subscriptions/" + id;
  }

  /** Makes a topic and a subscription of the same id. */
  void create(String id, UnaryOperator<Subscription.Builder> options) {
    topics.createTopic(topicName(id));
    Subscription.Builder named =
        Subscription.newBuilder().setName(subscriptionName(id)).setTopic(topicName(id)).setAckDeadlineSeconds(10);
    subscriptions.createSubscription(options.apply(named).build());
  }

  /** Sends all messages and waits for their ids. */
  void publish(String id, List<PubsubMessage> messages, UnaryOperator<Publisher.Builder> options) throws Exception {
    Publisher.Builder named =
        Publisher.newBuilder(topicName(id)).setChannelProvider(transport).setCredentialsProvider(nobody);
    Publisher publisher = options.apply(named).build();
    try {
      List<ApiFuture<String>> ids = new ArrayList<>();
      for (PubsubMessage message : messages) {
        ids.add(publisher.publish(message));
      }
      publisher.publishAllOutstanding();
      ApiFutures.allAsList(ids).get(CASE_S, TimeUnit.SECONDS);
    } finally {
      publisher.shutdown();
      publisher.awaitTermination(CASE_S, TimeUnit.SECONDS);
    }
  }

  void publish(String id, List<PubsubMessage> messages) throws Exception {
    publish(id, messages, builder -> builder);
  }

  /** Takes a message; true when it counts. */
  interface Handler {
    boolean handle(PubsubMessage message, AckReplyConsumerWithResponse reply) throws Exception;
  }

  /** Hands messages to the handler until it has said true `want` times and it was quiet for a while. */
  void receive(String id, int want, Handler handler, UnaryOperator<Subscriber.Builder> options) throws Exception {
    AtomicInteger got = new AtomicInteger();
    AtomicReference<Throwable> failure = new AtomicReference<>();
    CountDownLatch enough = new CountDownLatch(1);
    MessageReceiverWithAckResponse receiver =
        (message, reply) -> {
          try {
            if (handler.handle(message, reply) && got.incrementAndGet() >= want) {
              enough.countDown();
            }
          } catch (Exception error) {
            failure.compareAndSet(null, error);
            reply.ack();
            enough.countDown();
          }
        };
    Subscriber.Builder named =
        Subscriber.newBuilder(subscriptionName(id), receiver)
            .setChannelProvider(transport)
            .setCredentialsProvider(nobody);
    Subscriber subscriber = options.apply(named).build();
    subscriber.addListener(
        new ApiService.Listener() {
          @Override
          public void failed(ApiService.State from, Throwable error) {
            failure.compareAndSet(null, error);
            enough.countDown();
          }
        },
        MoreExecutors.directExecutor());
    subscriber.startAsync();
    enough.await(CASE_S, TimeUnit.SECONDS);
    Thread.sleep(QUIET_MS);
    if (subscriber.isRunning()) {
      subscriber.stopAsync().awaitTerminated(CASE_S, TimeUnit.SECONDS);
    }
    if (failure.get() != null) {
      throw new ExecutionException(failure.get());
    }
    check(got.get() == want, "received " + got.get() + " of " + want);
  }

  void receive(String id, int want, Handler handler) throws Exception {
    receive(id, want, handler, builder -> builder);
  }

  /** Acks each message; how often each body came. */
  Map<ByteString, Integer> receiveAll(String id, int want) throws Exception {
    Map<ByteString, Integer> seen = new ConcurrentHashMap<>();
    receive(
        id,
        want,
        (message, reply) -> {
          reply.ack();
          seen.merge(message.getData(), 1, Integer::sum);
          return true;
        });
    return seen;
  }

  /** Messages whose bodies are their numbers. */
  static List<PubsubMessage> numbered(int count, IntFunction<PubsubMessage.Builder> make) {
    List<PubsubMessage> messages = new ArrayList<>();
    for (int i = 0; i < count; i++) {
      messages.add(make.apply(i).build());
    }
    return messages;
  }

  static List<PubsubMessage> numbered(int count) {
    return numbered(count, Bench::number);
  }

  static PubsubMessage.Builder number(int i) {
    return PubsubMessage.newBuilder().setData(ByteString.copyFromUtf8(String.valueOf(i)));
  }

  /** Throws with the text unless the condition holds. */
  static void check(boolean holds, String text) {
    if (!holds) {
      throw new IllegalStateException(text);
    }
  }

  /** A call that should fail. */
  interface Call {
    void run() throws Exception;
  }

  /** The gRPC status of a call that should fail; OK when it does not. */
  static StatusCode.Code codeOf(Call call) throws Exception {
    try {
      call.run();
    } catch (Exception error) {
      for (Throwable cause = error; cause != null; cause = cause.getCause()) {
        if (cause instanceof ApiException status) {
          return status.getStatusCode().getCode();
        }
      }
      throw error;
    }
    return StatusCode.Code.OK;
  }
}
