package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
)

// peer is a node and its state machine.
type peer struct {
	node  *raftlog.Node
	store *store
}

// openPeer opens a node with an empty store as its state machine.
func openPeer(cfg raftlog.Config) (*peer, error) {
	s := newStore()
	cfg.StateMachine = s
	node, err := raftlog.Open(cfg)
	return &peer{node, s}, err
}

// proposeUpdate proposes an update. The update is applied once, even if it is proposed again with the same ID.
func (p *peer) proposeUpdate(ctx context.Context, id api.RequestID, u update) (index uint64, err error) {
	data, err := json.Marshal(u)
	if err != nil {
		return 0, err
	}
	return p.node.Propose(ctx, id, data)
}

// runCommands runs one command per line, and prints the results. It returns at the end of the input, or
// when ctx is done, even while it waits for input.
func (p *peer) runCommands(ctx context.Context, in io.Reader, out io.Writer) error {
	lines := make(chan string)
	var readErr error // must be read only after lines is closed
	go func() {
		defer close(lines)
		input := bufio.NewScanner(in)
		for input.Scan() {
			select {
			case lines <- input.Text():
			case <-ctx.Done():
				return
			}
		}
		readErr = input.Err()
	}()
	for {
		select {
		case line, ok := <-lines:
			if !ok {
				return readErr
			}
			result, err := p.runCommand(ctx, line)
			if err != nil {
				result = "error: " + err.Error()
			}
			fmt.Fprintln(out, result)
		case <-ctx.Done():
			return nil
		}
	}
}

// runCommand runs set KEY VALUE, get KEY, delete KEY or list.
func (p *peer) runCommand(ctx context.Context, line string) (string, error) {
	command, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
	key, value, _ := strings.Cut(rest, " ")
	switch command {
	case "set", "delete":
		index, err := p.proposeUpdate(ctx, api.NewRequestID(), update{Key: key, Value: value, Delete: command == "delete"})
		return fmt.Sprint("entry ", index), err
	case "get", "list":
		if err := p.node.Sync(ctx); err != nil { // waits until the updates that were committed before are applied here
			return "", err
		}
		if command == "list" {
			return p.store.String(), nil
		}
		value, ok := p.store.get(key)
		if !ok {
			return "", fmt.Errorf("key %q does not exist", key)
		}
		return value, nil
	}
	return "", fmt.Errorf("unknown command %q: use set KEY VALUE, get KEY, delete KEY or list", command)
}
