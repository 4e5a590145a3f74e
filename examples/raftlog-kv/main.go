// Command raftlog-kv is a replicated map: a state machine (store.go) on a log that three
// peers keep, each of which can be written to. Repeated writes are applied once.
//
//	go run ./examples/raftlog-kv     # three peers in this process, and a story of them
//
// or three processes, that take lines from standard input (set KEY VALUE, get KEY, delete KEY,
// list) until its end:
//
//	P=a@127.0.0.1:8041,b@127.0.0.1:8042,c@127.0.0.1:8043
//	RAFTLOG_SECRET=... go run ./examples/raftlog-kv --peer a --peers $P --dir /tmp/kv-a
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"log/slog"
	"os"
	"os/signal"
	"strings"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
)

func main() {
	id := flag.String("peer", "", "run this one peer; none: a story of three")
	peers := flag.String("peers", "", "all peers, id@host:port,...")
	dir := flag.String("dir", "", "folder of the peer's data")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	var err error
	if *id == "" {
		err = tell(ctx, os.Stdout)
	} else {
		err = runPeer(ctx, *id, *peers, *dir, os.Getenv("RAFTLOG_SECRET"), os.Stdin, os.Stdout)
	}
	if err != nil {
		log.Fatal(err)
	}
}

// runPeer runs one peer until its input ends.
func runPeer(ctx context.Context, id, peers, dir, secret string, in io.Reader, out io.Writer) (err error) {
	cfg := raftlog.Config{
		Cluster: "example", ID: id, Dir: dir, Secret: []byte(secret), Insecure: secret == "",
		Logger: slog.New(slog.NewTextHandler(os.Stderr, nil)),
	}
	for one := range strings.SplitSeq(peers, ",") {
		name, addr, _ := strings.Cut(one, "@")
		cfg.Peers = append(cfg.Peers, api.Peer{ID: name, Addr: addr})
		if name == id {
			cfg.Addr = addr
		}
	}
	if cfg.Addr == "" {
		return fmt.Errorf("--peers has no peer %q; one is written id@host:port", id)
	}
	p, err := open(cfg)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	return p.serve(ctx, in, out)
}
