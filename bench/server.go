package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"regexp"
	"strconv"
	"time"

	"github.com/go-zookeeper/zk"
)

// control is the harness's own view of the server.
type control struct {
	addr string
	conn *zk.Conn
}

func newControl(addr string) (*control, error) {
	conn, err := dial(addr)
	if err != nil {
		return nil, err
	}
	return &control{addr: addr, conn: conn}, nil
}

func (c *control) close() { c.conn.Close() }

// newDir makes an empty node for a line.
func (c *control) newDir() (string, error) {
	return c.conn.Create("/bench-", nil, zk.FlagSequence, zk.WorldACL(zk.PermAll))
}

// poll repeats a check until it says that it is done.
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

// waitCount waits until n candidates have znodes at dir.
func (c *control) waitCount(ctx context.Context, dir string, n int) error {
	count := 0
	err := poll(ctx, "waiting for candidates", time.Minute, 2*time.Millisecond, func() (bool, error) {
		_, stat, err := c.conn.Exists(dir)
		if err != nil {
			return false, err
		}
		count = int(stat.NumChildren)
		return count == n, nil
	})
	if err != nil {
		return fmt.Errorf("%d of %d at %s: %w", count, n, dir, err)
	}
	return nil
}

// waitWatches waits until the server holds at least n watches.
func (c *control) waitWatches(ctx context.Context, n int) error {
	return poll(ctx, "waiting for watches", 2*time.Minute, 20*time.Millisecond, func() (bool, error) {
		count, err := c.watches()
		return count >= n, err
	})
}

// settledWatches waits until the number of watches has not changed for a
// while, and returns it.
func (c *control) settledWatches(ctx context.Context) (count int, err error) {
	const calm = 3
	count, same := -1, 0
	err = poll(ctx, "waiting for the watches to settle", time.Minute, 60*time.Millisecond, func() (bool, error) {
		n, err := c.watches()
		if n == count {
			same++
		} else {
			count, same = n, 0
		}
		return same == calm, err
	})
	return count, err
}

var watchCount = regexp.MustCompile(`zk_watch_count\s+(\d+)`)

// watches is how many watches the server holds, of every kind; "mntr" tells
// only of those on data.
func (c *control) watches() (int, error) {
	answer, err := fourLetter(c.addr, "mntr")
	if err != nil {
		return 0, err
	}
	match := watchCount.FindStringSubmatch(answer)
	if match == nil {
		return 0, errors.New("mntr: the server does not tell how many watches it holds")
	}
	return strconv.Atoi(match[1])
}

var serverVersion = regexp.MustCompile(`Zookeeper version: ([\d.]+)`)

func (c *control) version() (string, error) {
	answer, err := fourLetter(c.addr, "srvr")
	if err != nil {
		return "", err
	}
	match := serverVersion.FindStringSubmatch(answer)
	if match == nil {
		return "", errors.New("srvr: the server does not tell its version")
	}
	return match[1], nil
}

func fourLetter(addr, command string) (string, error) {
	const limit = 10 * time.Second
	conn, err := net.DialTimeout("tcp", addr, limit)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(limit)); err != nil {
		return "", err
	}
	if _, err := io.WriteString(conn, command); err != nil {
		return "", err
	}
	answer, err := io.ReadAll(conn)
	return string(answer), err
}
