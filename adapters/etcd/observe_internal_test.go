package etcd

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
)

// TestObserver_ReceiverChangesLeader fails if a leader is delivered again, although it has not
// changed, because the receiver has changed the previous observation.
func TestObserver_ReceiverChangesLeader(t *testing.T) {
	o := &observer{observations: make(chan leaderelection.Observation, 1)}
	o.publish(&leaderelection.CandidateInfo{ID: "id", Name: "name"})
	(<-o.observations).Leader.Name = "other"
	o.publish(&leaderelection.CandidateInfo{ID: "id", Name: "name"})
	require.Empty(t, o.observations)
	o.publish(nil)
	require.Nil(t, (<-o.observations).Leader)
}
