package main

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/internal/zk/request"
)

// at returns the functions for another election with the same connection.
func (z *zookeeper) at(election string) backend {
	s := *z.settings
	s.election = election
	return (&zookeeper{settings: &s, conn: z.conn, of: z}).functions()
}

// missing reports whether an error means that there is no such election.
func (z *zookeeper) missing(err error) bool {
	return errors.Is(err, leaderelection.ErrNoElection) || errors.Is(err, leaderelection.ErrElectionOver)
}

// findLimit is how many znodes find looks at.
const findLimit = 1000

// find walks through the tree under a znode, that one included, for those that have
// candidates among their children. It costs a request for each znode that is none.
func (z *zookeeper) find(ctx context.Context, under string) (elections []string, all bool, err error) {
	if err := z.ready(ctx); err != nil {
		return nil, false, err
	}
	queue := []string{under}
	for seen := 0; len(queue) > 0; seen++ {
		if seen == findLimit {
			return elections, false, nil
		}
		parent := queue[0]
		queue = queue[1:]
		children, err := request.Read(ctx, z.conn, func() ([]string, error) {
			children, _, err := request.Children(z.conn, parent)
			return children, err
		})
		switch {
		case errors.Is(err, zk.ErrNoNode) && parent == under:
			return nil, false, fmt.Errorf("--under %s: %w", under, err)
		case errors.Is(err, zk.ErrNoNode), errors.Is(err, zk.ErrNoAuth) && parent != under:
			continue
		case err != nil:
			return nil, false, fmt.Errorf("look for elections in %s: %w", parent, err)
		}
		slices.Sort(children)
		found := false
		for _, child := range children {
			switch full := path.Join(parent, child); {
			case standsForElection(child):
				found = true
			case full != "/zookeeper":
				queue = append(queue, full)
			}
		}
		if found {
			elections = append(elections, parent)
		}
	}
	return elections, true, nil
}

// standsForElection says whether a znode's name is that of a candidate: of this library, of
// Curator's LeaderLatch, of kazoo (whose locks have the same names) or of Comcast's.
func standsForElection(name string) bool {
	head := strings.TrimRight(name, "0123456789")
	if len(name)-len(head) != 10 {
		return false
	}
	return strings.HasSuffix(head, "latch-") || strings.HasSuffix(head, "__lock__") || head == "le_"
}
