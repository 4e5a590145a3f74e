package etcd

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
)

// TestObserver_ToleratesChangesByReceiver checks that an observer does not deliver the same leader again after
// the receiver has modified the previous observation.
func TestObserver_ToleratesChangesByReceiver(t *testing.T) {
	o := &observer{observations: make(chan leaderelection.Observation, 1)}
	o.publish(&leaderelection.CandidateInfo{ID: "id", Name: "name"})
	(<-o.observations).Leader.Name = "other"
	o.publish(&leaderelection.CandidateInfo{ID: "id", Name: "name"})
	require.Empty(t, o.observations)
	o.publish(nil)
	require.Nil(t, (<-o.observations).Leader)
}
