package group

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/go-leaderelection/leaderelection/internal/zk/contender/trace"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(trace.Tests{M: m}) }
