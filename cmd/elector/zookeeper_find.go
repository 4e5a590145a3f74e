package main

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/zkdial"
)

// findLimit is the maximum number of znodes that find reads.
const findLimit = 1000

// find returns the znodes below parent, and parent itself, that have candidates among their children.
// It sends one request for each znode that is not a candidate.
func (z *zooKeeperBackend) find(ctx context.Context, parent string) (elections []string, complete bool, err error) {
	if err := z.awaitSession(ctx); err != nil {
		return nil, false, err
	}
	pending := []string{parent}
	for count := 0; len(pending) > 0; count++ {
		if count == findLimit {
			return elections, false, nil
		}
		node := pending[0]
		pending = pending[1:]
		children, err := zkdial.Children(ctx, z.conn, node)
		switch {
		case errors.Is(err, zk.ErrNoNode) && node == parent:
			return nil, false, fmt.Errorf("--under %s: %w", parent, err)
		case errors.Is(err, zk.ErrNoNode), errors.Is(err, zk.ErrNoAuth) && node != parent:
			continue
		case err != nil:
			return nil, false, fmt.Errorf("find elections in %s: %w", node, err)
		}
		slices.Sort(children)
		isElection := false
		for _, child := range children {
			switch full := path.Join(node, child); {
			case isCandidateName(child):
				isElection = true
			case full != "/zookeeper":
				pending = append(pending, full)
			}
		}
		if isElection {
			elections = append(elections, node)
		}
	}
	return elections, true, nil
}

// isCandidateName reports whether a znode has the name of a candidate of this library, of Curator's
// LeaderLatch, of kazoo (whose locks have the same names) or of Comcast's library.
func isCandidateName(name string) bool {
	prefix := strings.TrimRight(name, "0123456789")
	if len(name)-len(prefix) != 10 {
		return false
	}
	return strings.HasSuffix(prefix, "latch-") || strings.HasSuffix(prefix, "__lock__") || prefix == "le_"
}
