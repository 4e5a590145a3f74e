package identity_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/identity"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/link"
)

// TestRegistry_RefusesContradictingClaims checks that Meet refuses a claim that contradicts the known
// identities of a peer, and accepts a valid claim.
func TestRegistry_RefusesContradictingClaims(t *testing.T) {
	claim := link.Claim{Founding: "f", Instance: "i", Start: 3, Process: "p"}
	with := func(change func(*link.Claim)) link.Claim {
		c := claim
		change(&c)
		return c
	}
	r := identity.Registry{Founding: "f", Former: []string{"e"}}
	changed, first, refused := r.Meet("b", claim)
	require.True(t, changed && first)
	require.Nil(t, refused)
	changed, _, refused = r.Meet("b", claim)
	require.False(t, changed)
	require.Nil(t, refused)
	for reason, c := range map[link.Reason][]link.Claim{
		link.ReasonFounding:  {with(func(c *link.Claim) { c.Founding = "g" })},
		link.ReasonRecovered: {with(func(c *link.Claim) { c.Founding = "e" })},
		link.ReasonInstance:  {with(func(c *link.Claim) { c.Instance = "j" }), with(func(c *link.Claim) { c.Instance = "" }), with(func(c *link.Claim) { c.Instance, c.Founding = "j", "" })},
		link.ReasonEarlier:   {with(func(c *link.Claim) { c.Start = 2 }), with(func(c *link.Claim) { c.Process = "q" })},
	} {
		for _, c := range c {
			_, _, refused := r.Meet("b", c)
			require.NotNil(t, refused, reason)
			require.Equal(t, reason, refused.Reason)
		}
	}
	changed, first, refused = r.Meet("b", with(func(c *link.Claim) { c.Start, c.Process = 4, "q" }))
	require.True(t, changed && !first)
	require.Nil(t, refused)

	entries := true
	r.Founders, r.IsEstablished = "a@1, b@2", func() bool { return entries }
	other := with(func(c *link.Claim) { c.Founding, c.Founders = "g", "a@1, b@3" })
	for reason, has := range map[link.Reason]bool{link.ReasonFounding: true, link.ReasonUncommitted: false} {
		entries = has
		_, _, refused = r.Meet("b", other)
		require.NotNil(t, refused)
		require.Equal(t, reason, refused.Reason)
		require.Contains(t, refused.Text, "a@1, b@2")
		require.Contains(t, refused.Text, "a@1, b@3")
	}

	_, _, refused = r.Meet("z", with(func(c *link.Claim) { c.Instance = "" }))
	require.NotNil(t, refused, "the peer has no instance")

	changed, contradicted := r.Learn(map[string]string{"b": "other", "c": "k", "": ""})
	require.True(t, changed)
	require.Equal(t, []string{"b"}, contradicted)
	_, _, refused = r.Meet("c", claim)
	require.NotNil(t, refused)
	require.Equal(t, map[string]string{"b": "i", "c": "k"}, r.Instances())
}
