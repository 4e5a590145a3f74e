package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"regexp"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"
)

// server is a separate session in which the benchmark prepares znodes and reads metrics, on a ZooKeeper server or on
// all servers of an ensemble.
type server struct {
	addr string // the addresses of all servers, separated by commas
	pid  int    // the process ID of the server; 0 if the server is not a child process
	conn *zk.Conn

	asked int // the number of calls of metric, which Apache's server counts as requests
}

// serverClass is the main class of a ZooKeeper server, by which findChild finds its process.
const serverClass = "org.apache.zookeeper.server.quorum.QuorumPeerMain"

// connectServer connects to the first server of a list of addresses.
func connectServer(addr string) (*server, error) {
	first, _, _ := strings.Cut(addr, ",")
	conn, err := dial(first, sessionTimeout)
	if err != nil {
		return nil, err
	}
	pid, err := findChild(serverClass)
	if err != nil {
		pid = 0
	}
	return &server{addr: addr, pid: pid, conn: conn}, nil
}

func (s *server) close() { s.conn.Close() }

// newDir creates an empty znode for a queue.
func (s *server) newDir() (string, error) {
	return s.conn.Create("/bench-", nil, zk.FlagSequence, zk.WorldACL(zk.PermAll))
}

// childPath returns the path of child i of a znode that newDirWith has created.
func childPath(dir string, i int) string { return fmt.Sprintf("%s/item-%05d", dir, i) }

// newDirWith creates a znode with n children, which contain data.
func (s *server) newDirWith(n int, data []byte) (string, error) {
	dir, err := s.newDir()
	for created := 0; created < n && err == nil; {
		var creates []any
		for range min(500, n-created) {
			creates = append(creates, &zk.CreateRequest{Path: childPath(dir, created), Data: data, Acl: zk.WorldACL(zk.PermAll)})
			created++
		}
		_, err = s.conn.Multi(creates...)
	}
	return dir, err
}

// poll calls done at the given interval until done returns true or an error, or until limit has passed. what names
// the awaited condition in errors.
func poll(ctx context.Context, what string, limit, interval time.Duration, done func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		if ok, err := done(); ok || err != nil {
			return err
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return fmt.Errorf("%s: %w", what, ctx.Err())
		}
	}
}

// waitChildren waits until dir has n children.
func (s *server) waitChildren(ctx context.Context, dir string, n int) error {
	count := 0
	err := poll(ctx, "waiting for candidates", time.Minute, 2*time.Millisecond, func() (bool, error) {
		_, stat, err := s.conn.Exists(dir)
		if err != nil {
			return false, err
		}
		count = int(stat.NumChildren)
		return count == n, nil
	})
	if err != nil {
		return fmt.Errorf("%s has %d of %d candidates: %w", dir, count, n, err)
	}
	return nil
}

// waitWatches waits until the server has at least n watches.
func (s *server) waitWatches(ctx context.Context, n int) error {
	return poll(ctx, "waiting for watches", joinPatience, 20*time.Millisecond, func() (bool, error) {
		count, err := s.watches()
		return count >= n, err
	})
}

// settledWatches waits until the number of watches has been constant for a while, and returns the number.
func (s *server) settledWatches(ctx context.Context) (count int, err error) {
	const required = 3
	count, same := -1, 0
	err = poll(ctx, "waiting for a constant number of watches", joinPatience, 60*time.Millisecond, func() (bool, error) {
		n, err := s.watches()
		if n == count {
			same++
		} else {
			count, same = n, 0
		}
		return same == required, err
	})
	return count, err
}

// watches returns the number of data watches that the servers have; ZooKeeper's command mntr does not
// count watches of children.
func (s *server) watches() (int, error) { return s.metric("zk_watch_count") }

// requests returns the number of requests that the server has received, including pings, without those of
// this program for metrics.
func (s *server) requests() (int, error) {
	const name = "zk_packets_received"
	first, err := s.metric(name)
	if err != nil {
		return 0, err
	}
	second, err := s.metric(name)
	if second == first { // the number has not changed, so the server does not count the commands that read its metrics
		return second, err
	}
	return second - s.asked, err
}

// metric returns the sum of a metric over all servers.
func (s *server) metric(name string) (int, error) {
	s.asked++
	sum := 0
	for addr := range strings.SplitSeq(s.addr, ",") {
		response, err := fourLetterWord(addr, "mntr")
		if err != nil {
			return 0, err
		}
		_, rest, _ := strings.Cut(response, name)
		var n int
		if _, err := fmt.Sscan(rest, &n); err != nil {
			return 0, fmt.Errorf("mntr: the response has no %s", name)
		}
		sum += n
	}
	return sum, nil
}

var serverVersion = regexp.MustCompile(`Zookeeper version: ([\d.]+)`)

func (s *server) version() (string, error) {
	response, err := fourLetterWord(s.addr, "srvr")
	if err != nil {
		return "", err
	}
	match := serverVersion.FindStringSubmatch(response)
	if match == nil {
		return "", errors.New("srvr: the response has no version")
	}
	return match[1], nil
}

// fourLetterWord sends a command such as srvr to a ZooKeeper server, and returns the response.
func fourLetterWord(addr, word string) (string, error) {
	const limit = 10 * time.Second
	conn, err := net.DialTimeout("tcp", addr, limit)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(limit)); err != nil {
		return "", err
	}
	if _, err := io.WriteString(conn, word); err != nil {
		return "", err
	}
	response, err := io.ReadAll(conn)
	return string(response), err
}
