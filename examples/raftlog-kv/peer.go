package main

// One peer, and the lines by which it is used.

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/requestid"
)

// peer is a node and its state machine.
type peer struct {
	*raftlog.Node
	store *store
}

func open(cfg raftlog.Config) (*peer, error) {
	s := newStore()
	cfg.StateMachine = s
	node, err := raftlog.Open(cfg)
	return &peer{node, s}, err
}

// propose has an update applied once, however often it is called with that ID.
func (p *peer) propose(ctx context.Context, id requestid.ID, u update) (index uint64, err error) {
	data, err := json.Marshal(u)
	if err != nil {
		return 0, err
	}
	return p.Propose(ctx, id, data)
}

// serve carries out lines: set KEY VALUE, get KEY, delete KEY, list.
func (p *peer) serve(ctx context.Context, in io.Reader, out io.Writer) error {
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		answer, err := p.do(ctx, lines.Text())
		if err != nil {
			answer = "error: " + err.Error()
		}
		fmt.Fprintln(out, answer)
	}
	return lines.Err()
}

func (p *peer) do(ctx context.Context, line string) (string, error) {
	do, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
	key, value, _ := strings.Cut(rest, " ")
	switch do {
	case "set", "delete":
		index, err := p.propose(ctx, requestid.New(), update{Key: key, Value: value, Delete: do == "delete"})
		return fmt.Sprint("entry ", index), err
	case "get", "list":
		if err := p.Sync(ctx); err != nil { // what was committed anywhere before is seen
			return "", err
		}
		if do == "list" {
			return p.store.String(), nil
		}
		value, ok := p.store.get(key)
		if !ok {
			return "", fmt.Errorf("there is no %q", key)
		}
		return value, nil
	}
	return "", fmt.Errorf("%q is none of set KEY VALUE, get KEY, delete KEY, list", do)
}
