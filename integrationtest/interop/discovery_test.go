package interop

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/testenv"
	"github.com/go-leaderelection/leaderelection/internal/testenv/bubble"
	"github.com/go-leaderelection/leaderelection/recipes/discovery"
)

// TestDiscovery_FindsCuratorInstances checks that Go and Curator find each other's service instances by a query and
// by a watch, and notice when an instance is removed.
func TestDiscovery_FindsCuratorInstances(t *testing.T) {
	curator.requirePeer(t)
	const name = "shop"
	base := testenv.NewPath(t)
	d, err := discovery.New(connect(t), base)
	require.NoError(t, err)
	ours, err := d.Register(testenv.ContextOf(t), discovery.Instance{
		Name: name, ID: "go", Address: "go.example", Port: 1, Payload: json.RawMessage(`"of Go"`),
	})
	require.NoError(t, err)
	cache := curator.subscribe(base)
	curator.runCommand(t, "watch", base, base, name)
	instances := func() string {
		all, err := d.Instances(testenv.ContextOf(t), name)
		require.NoError(t, err)
		return describeInstances(all)
	}
	const goInstance, javaInstance = `go@go.example:1("of Go")`, `java@java.example:2("of Java")`
	unquoted := func(s string) string { return strings.ReplaceAll(s, `"`, "") }

	require.Equal(t, unquoted(goInstance), curator.runCommand(t, "discover", base, name))
	provider, err := d.Provider(testenv.ContextOf(t), name)
	require.NoError(t, err)
	curator.runCommand(t, "register", "instance-of"+base, base, name, "java", 2)
	require.Equal(t, goInstance+","+javaInstance, instances())
	waitInstances(t, provider, goInstance+","+javaInstance)
	waitMessage(t, cache, "changed "+unquoted(goInstance+","+javaInstance))
	require.Equal(t, unquoted(goInstance+","+javaInstance), curator.runCommand(t, "discover", base, name))

	// The provider must return each of the two instances in turn.
	chosen := map[string]bool{}
	for range 2 {
		i, err := provider.Choose()
		require.NoError(t, err)
		chosen[i.ID] = true
	}
	require.Len(t, chosen, 2)

	require.NoError(t, bubble.Repeated(ours.Close))
	waitMessage(t, cache, "changed "+unquoted(javaInstance))
	waitInstances(t, provider, javaInstance)
	curator.runCommand(t, "close", "instance-of"+base)
	waitInstances(t, provider, "")
	require.Empty(t, instances())
	curator.runCommand(t, "close", base)
	require.NoError(t, bubble.Repeated(provider.Close))
}

func describeInstances(instances []discovery.Instance) string {
	var all []string
	for _, i := range instances {
		all = append(all, fmt.Sprintf("%s@%s:%d(%s)", i.ID, i.Address, i.Port, i.Payload))
	}
	slices.Sort(all)
	return strings.Join(all, ",")
}

// waitInstances waits until a provider returns exactly the instances in want.
func waitInstances(t *testing.T, p *discovery.Provider, want string) {
	t.Helper()
	limit, last := time.After(testenv.WaitLimit), ""
	lists := p.Watch(t.Context())
	for {
		if all, err := p.Instances(); err == nil || want == "" {
			if last = describeInstances(all); last == want {
				return
			}
		}
		select {
		case <-lists:
		case <-limit:
			require.FailNow(t, "wrong instances of the provider", "%s, want %s", last, want)
		}
	}
}

// waitMessage waits until a peer sends the message want.
func waitMessage(t *testing.T, messages <-chan string, want string) {
	t.Helper()
	limit, last := time.After(testenv.WaitLimit), ""
	for {
		select {
		case last = <-messages:
			if strings.TrimSpace(last) == want {
				return
			}
		case <-limit:
			require.FailNow(t, "missing message", "last %q, want %q", last, want)
		}
	}
}
