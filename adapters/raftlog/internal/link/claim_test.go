package link

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Nobody who stands in between can exchange a part of a claim.
func TestProofsCoverClaims(t *testing.T) {
	channel := []byte("channel")
	g := &greeting{Hello: Hello{"c1", "a", "a:7", true, PurposeRaft, claimed("a")}, to: "b"}
	a := &answer{id: "b", peer: true, claim: claimed("b")}
	dials, accepts := proveGreeting(secret, g, channel), proveAnswer(secret, g, a, channel)
	for _, change := range []func(*Claim){
		func(c *Claim) { c.Founding += "x" },
		func(c *Claim) { c.Instance += "x" },
		func(c *Claim) { c.Start++ },
		func(c *Claim) { c.Process += "x" },
		func(c *Claim) { c.Founding, c.Instance = c.Founding+c.Instance, "" },
	} {
		other, otherAnswer := *g, *a
		change(&other.Claim)
		change(&otherAnswer.claim)
		require.NotEqual(t, dials, proveGreeting(secret, &other, channel))
		require.NotEqual(t, accepts, proveAnswer(secret, g, &otherAnswer, channel))
	}
}
