package main

import (
	"fmt"

	"github.com/go-zookeeper/zk"
)

// connected is nil with a session on a connection that stands, as far as the client
// library knows: it notices a silent one within two thirds of the session timeout.
func (z *zookeeper) connected() error {
	if state := z.conn.State(); state != zk.StateHasSession {
		return fmt.Errorf("no session on zookeeper: %v", state)
	}
	return nil
}
