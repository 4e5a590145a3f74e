package event

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestEvent_StringKeepsLogFormat checks that the text of an event, for which operators may search in logs, does
// not change.
func TestEvent_StringKeepsLogFormat(t *testing.T) {
	for want, e := range map[string]Event{
		"joined a": {Kind: Joined, ID: "a"},
		"new leader a: b token 3 (2 were missed)":               {Kind: NewLeader, ID: "a", Subject: "b", Token: 3, Missed: 2},
		"hand-over token 3 after 1s":                            {Kind: HandOver, Token: 3, Duration: time.Second},
		"ended: candidate has resigned":                         {Kind: Ended, Err: errors.New("candidate has resigned")},
		"released lock /app/lock: /app/lock/x token 3 after 1s": {Kind: Released, Recipe: "lock", Path: "/app/lock", Subject: "/app/lock/x", Token: 3, Duration: time.Second},
		"listed queue /jobs count 7":                            {Kind: Listed, Recipe: "queue", Path: "/jobs", Count: 7},
		"Kind(0)":                                               {},
		"Kind(99)":                                              {Kind: 99},
	} {
		require.Equal(t, want, e.String())
	}
}
