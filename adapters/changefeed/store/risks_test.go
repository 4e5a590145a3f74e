package store_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
	"github.com/go-leaderelection/leaderelection/adapters/changefeed/store"
)

var unsafeSettings = []changefeed.UnsafeSetting{
	{Name: "appendonly", Value: "no", Risk: changefeed.RiskRestart, Remedy: "set it to yes"},
	{Name: "replicas", Value: "2", Risk: changefeed.RiskFailover, Remedy: "use one server"},
	{Name: "save", Value: "60 1", Risk: changefeed.RiskRestart, Remedy: "turn it off"},
}

// TestAcceptedRisks_OtherRisksAreErrors checks that the error of Check contains each setting whose
// risk was not accepted, and no other setting.
func TestAcceptedRisks_OtherRisksAreErrors(t *testing.T) {
	var none, one, all store.AcceptedRisks
	require.NoError(t, one.Add(changefeed.RiskFailover))
	require.NoError(t, all.Add(changefeed.RiskFailover, changefeed.RiskRestart))
	require.NoError(t, none.Check("redis at db:6379", nil))
	require.NoError(t, all.Check("redis at db:6379", unsafeSettings))

	err := none.Check("redis at db:6379", unsafeSettings)
	require.ErrorIs(t, err, changefeed.ErrUnsuitable)
	for _, text := range []string{
		"redis at db:6379", `appendonly is "no"`, "set it to yes", `replicas is "2"`, `save is "60 1"`,
		`WithRisk("restart", "failover")`, "unsafe=restart,failover",
	} {
		require.ErrorContains(t, err, text)
	}

	var unsafe *changefeed.UnsafeError
	require.ErrorAs(t, one.Check("redis", unsafeSettings), &unsafe)
	require.Equal(t, []changefeed.Risk{changefeed.RiskRestart}, unsafe.Risks())
	require.Len(t, unsafe.Settings, 2)
}

// TestAcceptedRisks_RejectsUnknownName checks that Add rejects a list that contains an unknown risk,
// and adds none of its risks.
func TestAcceptedRisks_RejectsUnknownName(t *testing.T) {
	var a store.AcceptedRisks
	err := a.Add(changefeed.RiskRestart, "fire")
	require.ErrorIs(t, err, leaderelection.ErrInvalid)
	require.ErrorContains(t, err, `"fire"`)
	require.ErrorContains(t, err, "failover, power-loss, restart")
	require.Error(t, a.Check("redis", unsafeSettings[:1]), "a list with an unknown name was accepted in part")
}

// TestParseRisk_AcceptsEveryRisk checks that ParseRisk accepts every risk, and that the message of an
// UnsafeError describes the risk.
func TestParseRisk_AcceptsEveryRisk(t *testing.T) {
	for _, r := range changefeed.Risks() {
		parsed, err := changefeed.ParseRisk(string(r))
		require.NoError(t, err)
		require.Equal(t, r, parsed)
		require.NotContains(t, (&changefeed.UnsafeError{Settings: []changefeed.UnsafeSetting{{Risk: r}}}).Error(), "so acknowledged writes",
			"the message does not describe the risk")
	}
}
