// Command raftlog-kv is a replicated map: a state machine (store.go) on a log with three peers. Clients can
// write at each peer. A write that is repeated with its request ID is applied once.
//
//	go run ./examples/raftlog-kv     # a demonstration with three peers in this process
//
// or three processes that read commands from standard input (set KEY VALUE, get KEY, delete KEY, list):
//
//	P=a@127.0.0.1:8041,b@127.0.0.1:8042,c@127.0.0.1:8043
//	RAFTLOG_SECRET=... go run ./examples/raftlog-kv --peer a --peers $P --dir /tmp/kv-a
//
// Set RAFTLOG_CLIENT_SECRET to another secret to accept clients, such as "raftlog status".
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
	id := flag.String("peer", "", "ID of the peer to run (default: a demonstration with three peers)")
	peers := flag.String("peers", "", "list of all peers, id@host:port,...")
	dir := flag.String("dir", "", "directory of the data of the peer")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	var err error
	if *id == "" {
		err = runDemo(ctx, os.Stdout)
	} else {
		err = runPeer(ctx, *id, *peers, *dir, os.Getenv("RAFTLOG_SECRET"), os.Getenv("RAFTLOG_CLIENT_SECRET"), os.Stdin, os.Stdout)
	}
	if err != nil {
		log.Fatal(err)
	}
}

// runPeer runs a peer until it has read all of its input, or until ctx is done.
func runPeer(ctx context.Context, id, peers, dir, secret, clientSecret string, in io.Reader, out io.Writer) (err error) {
	cfg := raftlog.Config{
		Cluster: "example", ID: id, Dir: dir, Secret: []byte(secret), ClientSecret: []byte(clientSecret), Insecure: secret == "",
		Logger: slog.New(slog.NewTextHandler(os.Stderr, nil)),
	}
	for peer := range strings.SplitSeq(peers, ",") {
		name, addr, _ := strings.Cut(peer, "@")
		cfg.Peers = append(cfg.Peers, api.Peer{ID: name, Addr: addr})
		if name == id {
			cfg.Addr = addr
		}
	}
	if cfg.Addr == "" {
		return fmt.Errorf("--peers does not contain peer %q as id@host:port", id)
	}
	p, err := openPeer(cfg)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.node.Close()) }()
	return p.runCommands(ctx, in, out)
}
