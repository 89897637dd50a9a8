// What go-redis needs of a server: HELLO at connect, CL.THROTTLE, a pipeline, errors that it knows.
package main

import (
	"context"
	"fmt"
	"os"
	"reflect"
	"strings"

	"github.com/redis/go-redis/v9"
)

func main() {
	address := "127.0.0.1:" + os.Getenv("RESP")
	for _, protocol := range []int{3, 2} {
		options := &redis.Options{Addr: address, ClientName: "e2e"}
		if protocol != 3 { // It is the default.
			options.Protocol = protocol
		}
		client := redis.NewClient(options)
		checkAll(fmt.Sprintf("go-redis RESP%d", protocol), client, protocol)
		client.Close()
	}
}

func checkAll(prefix string, client *redis.Client, protocol int) {
	ctx := context.Background()
	key := func(name string) string { return fmt.Sprintf("go %d %s", protocol, name) }

	pong, err := client.Ping(ctx).Result()
	same(prefix+" PING", "PONG", pong, err)

	text, err := client.Do(ctx, "CLIENT", "INFO").Text()
	spoken := strings.Contains(text, fmt.Sprintf("resp=%d", protocol))
	same(prefix+" speaks what was agreed", true, spoken && strings.Contains(text, "name=e2e"), err)

	reply, err := client.Do(ctx, "CL.THROTTLE", key("one"), 15, 30, 60).Int64Slice()
	same(prefix+" CL.THROTTLE", []int64{0, 16, 15, -1, 2}, reply, err)

	// Ten of a hundred pass, and each reply belongs to its command.
	commands, err := client.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for range 100 {
			pipe.Do(ctx, "CL.THROTTLE", key("many"), 9, 1, 3600)
		}
		return nil
	})
	var wrong []string
	for index, command := range commands {
		reply, err := command.(*redis.Cmd).Int64Slice()
		denied := index >= 10
		if err != nil || len(reply) != 5 || (reply[0] == 1) != denied {
			wrong = append(wrong, fmt.Sprint(index, reply, err))
		}
	}
	same(prefix+" a pipeline of 100", 0, len(wrong), err)

	err = client.Get(ctx, "x").Err()
	unknown := "ERR unknown command 'get', with args beginning with: 'x' "
	same(prefix+" an unknown command", unknown, fmt.Sprint(err), nil)

	reply, err = client.Do(ctx, "CL.THROTTLE", "\xff\xfe", 4, 1, 60).Int64Slice()
	same(prefix+" a key that is no text", int64(5), reply[1], err)
}

func same(name string, wanted, got any, err error) {
	if err == nil && reflect.DeepEqual(wanted, got) {
		fmt.Println("ok", name)
	} else {
		fmt.Printf("FAILED %s\n  wanted: %v\n  got:    %v (%v)\n", name, wanted, got, err)
	}
}
