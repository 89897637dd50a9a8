// grpc-go with the messages of Envoy's own Go packages: connections that age out under load, pings
// of a client that is idle, health, and requests with all that they may have.
package main

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	descriptors "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	envoytype "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	_ "google.golang.org/grpc/health"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

const (
	connections   = 20
	callersOfEach = 10
	loadLasts     = 10 * time.Second
	// The least that grpc-go takes.
	pingEvery = 10 * time.Second
	// Of the limit `counted`.
	countedUnits = 20_000
	opened       = `tollgate_connections_opened_total{face="grpc"}`
)

// One that ends connections after a second, and one that does not.
var aging, lasting = daemon("AGING"), daemon("LASTING")

func main() {
	var parts sync.WaitGroup
	parts.Go(idle)
	parts.Go(underLoad)
	parts.Wait()
	allThatRequestsHave()
}

// 200 calls are always under way while every connection is ended each second.
func underLoad() {
	var asked, allowed, failed atomic.Int64
	var callers sync.WaitGroup
	end := time.Now().Add(loadLasts)
	before := aging.metric(opened)
	for range connections {
		client := rls.NewRateLimitServiceClient(aging.dial())
		for range callersOfEach {
			callers.Go(func() {
				for time.Now().Before(end) {
					asked.Add(1)
					answer, err := client.ShouldRateLimit(context.Background(), request(entry("counted", "load")))
					if err != nil {
						failed.Add(1)
						fmt.Println(" ", err)
					} else if answer.OverallCode == rls.RateLimitResponse_OK {
						allowed.Add(1)
					}
				}
			})
		}
	}
	callers.Wait()
	ended := aging.metric(opened) - before
	fmt.Printf("  %d calls over %d connections\n", asked.Load(), ended)
	same("grpc-go connections age out under load: no call fails", int64(0), failed.Load(), nil)
	same("grpc-go and they do age out", true, ended >= 5*connections, nil)
	same("grpc-go as many are allowed as the limit allows",
		min(countedUnits, asked.Load()), allowed.Load(), nil)
	decisions := func(decision, reason string) int64 {
		name := `tollgate_decisions_total{face="grpc",decision="%s",reason="%s"}`
		return aging.metric(fmt.Sprintf(name, decision, reason))
	}
	same("grpc-go and as many are counted as allowed", allowed.Load(), decisions("allowed", ""), nil)
	same("grpc-go and the others as denied",
		asked.Load()-allowed.Load(), decisions("denied", "over_limit"), nil)
}

// A client that asks nothing pings, and stays connected.
func idle() {
	var received atomic.Int64
	dialer := func(ctx context.Context, address string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
		return counting{conn, &received}, err
	}
	conn := lasting.dial(
		grpc.WithContextDialer(dialer),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{
			Time: pingEvery, Timeout: time.Second, PermitWithoutStream: true,
		}),
		// It watches health, and would not ask one that is not well.
		grpc.WithDefaultServiceConfig(`{"loadBalancingConfig": [{"round_robin": {}}],
			"healthCheckConfig": {"serviceName": "envoy.service.ratelimit.v3.RateLimitService"}}`),
	)
	client := rls.NewRateLimitServiceClient(conn)
	answer, err := client.ShouldRateLimit(context.Background(), request(entry("user", "idle")))
	same("grpc-go asks one that is healthy", "OK", answer.GetOverallCode().String(), err)
	time.Sleep(time.Second) // Whatever belongs to the call has arrived.
	quiet, start := received.Load(), time.Now()
	for received.Load() == quiet && time.Since(start) < 2*pingEvery {
		time.Sleep(20 * time.Millisecond)
	}
	pinged := time.Since(start) > pingEvery/2 && received.Load() > quiet
	same("grpc-go a ping of an idle client is answered", true, pinged, nil)
	answer, err = client.ShouldRateLimit(context.Background(), request(entry("user", "idle")))
	same("grpc-go and it goes on", "OK", answer.GetOverallCode().String(), err)
	same("grpc-go on the connection that it had", int64(1), lasting.metric(opened), nil)
}

// counting counts the bytes that arrive.
type counting struct {
	net.Conn
	received *atomic.Int64
}

func (c counting) Read(into []byte) (int, error) {
	count, err := c.Conn.Read(into)
	c.received.Add(int64(count))
	return count, err
}

func allThatRequestsHave() {
	client := rls.NewRateLimitServiceClient(lasting.dial())
	ask := func(asked *rls.RateLimitRequest) (string, []string, error) {
		answer, err := client.ShouldRateLimit(context.Background(), asked)
		if err == nil {
			err = answer.ValidateAll()
		}
		if err == nil && len(answer.ProtoReflect().GetUnknown()) != 0 {
			err = fmt.Errorf("it has fields that are not known: %v", answer)
		}
		var shown []string
		for _, status := range answer.GetStatuses() {
			limit := status.GetCurrentLimit()
			shown = append(shown, strings.TrimSpace(fmt.Sprint(limit.GetName(), " ",
				limit.GetRequestsPerUnit(), "/", limit.GetUnit(), " ", status.LimitRemaining)))
		}
		return answer.GetOverallCode().String(), shown, err
	}

	brought := entry("user", "brought")
	brought.Limit = &descriptors.RateLimitDescriptor_RateLimitOverride{
		RequestsPerUnit: 7, Unit: envoytype.RateLimitUnit_MONTH,
	}
	six := entry("user", "six")
	six.HitsAddend = wrapperspb.UInt64(6)
	back := entry("user", "six")
	back.HitsAddend, back.IsNegativeHits = wrapperspb.UInt64(4), true
	none := entry("user", "none")
	none.HitsAddend = wrapperspb.UInt64(0)
	two := entry("tenant", "acme")
	two.Entries = append(two.Entries, entry("metric", "iops").Entries...)

	code, shown, err := ask(request(brought, six, none, two, entry("unknown", "x")))
	wanted := []string{"7/MONTH 6", "user 10/MINUTE 4", "user 10/MINUTE 10", "metric 100/MINUTE 99",
		"0/UNKNOWN 0"}
	same("grpc-go one request with all that a descriptor may have", "OK", code, err)
	same("grpc-go and what is said of each", wanted, shown, nil)
	_, shown, err = ask(request(back))
	same("grpc-go hits are given back", []string{"user 10/MINUTE 8"}, shown, err)

	// 1000 descriptors, each a key of its own, in another order each time.
	for round := range 2 {
		var many []*descriptors.RateLimitDescriptor
		wanted = nil
		for index := range 1000 {
			number := (index*7 + round*13) % 1000
			one := entry("user", fmt.Sprint("many", number))
			one.HitsAddend = wrapperspb.UInt64(uint64(number % 5))
			many = append(many, one)
			wanted = append(wanted, fmt.Sprint("user 10/MINUTE ", 10-(round+1)*(number%5)))
		}
		code, shown, err := ask(request(many...))
		right := code == "OK" && reflect.DeepEqual(wanted, shown)
		same("grpc-go 1000 descriptors, each with its own answer", true, right, err)
	}
	elsewhere := request(entry("k", "vx"))
	elsewhere.Domain = "precedence"
	_, shown, err = ask(elsewhere)
	same("grpc-go another domain", []string{"pattern 10/MINUTE 9"}, shown, err)
}

func request(asked ...*descriptors.RateLimitDescriptor) *rls.RateLimitRequest {
	return &rls.RateLimitRequest{Domain: "edge", Descriptors: asked}
}

func entry(key, value string) *descriptors.RateLimitDescriptor {
	return &descriptors.RateLimitDescriptor{
		Entries: []*descriptors.RateLimitDescriptor_Entry{{Key: key, Value: value}},
	}
}

// server is a daemon that somebody started.
type server struct{ grpc, http string }

func daemon(name string) server {
	return server{"127.0.0.1:" + os.Getenv(name+"_GRPC"), "127.0.0.1:" + os.Getenv(name+"_HTTP")}
}

func (s server) dial(options ...grpc.DialOption) *grpc.ClientConn {
	options = append(options, grpc.WithTransportCredentials(insecure.NewCredentials()))
	conn, err := grpc.NewClient(s.grpc, options...)
	if err != nil {
		panic(err)
	}
	return conn
}

// metric is 0 if there is none of the name.
func (s server) metric(name string) int64 {
	answer, err := http.Get("http://" + s.http + "/metrics")
	if err != nil {
		panic(err)
	}
	defer answer.Body.Close()
	for lines := bufio.NewScanner(answer.Body); lines.Scan(); {
		if value, found := strings.CutPrefix(lines.Text(), name+" "); found {
			number, err := strconv.ParseInt(value, 10, 64)
			if err != nil {
				panic(err)
			}
			return number
		}
	}
	return 0
}

func same(name string, wanted, got any, err error) {
	if err == nil && reflect.DeepEqual(wanted, got) {
		fmt.Println("ok", name)
	} else {
		fmt.Printf("FAILED %s\n  wanted: %v\n  got:    %v (%v)\n", name, wanted, got, err)
	}
}
