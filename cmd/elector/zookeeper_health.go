package main

import (
	"errors"
	"fmt"

	"github.com/go-zookeeper/zk"

	"github.com/go-leaderelection/leaderelection/internal/zk/handshake"
)

// connected returns nil if there is a session and the connection is up, as far as the client
// library knows: it notices a silent connection within two thirds of the session timeout.
func (z *zookeeper) connected() error {
	state := z.conn.State()
	if state == zk.StateHasSession {
		return nil
	}
	err := fmt.Errorf("no session on zookeeper: %v", state)
	if failure := handshake.Of(z.conn).Failure(); failure != nil {
		err = fmt.Errorf("%w: %w", err, failure)
	}
	return err
}

var errDataLost = errors.New("the servers have lost their data, and with it the session of this client; it has no new session yet")

// healthy returns an error between the loss of the servers' data and the next session. Without
// one a restart of this process is the remedy, and costs nothing: it cannot lead.
func (z *zookeeper) healthy() error {
	if handshake.Of(z.conn).Losing() {
		return errDataLost
	}
	return nil
}
