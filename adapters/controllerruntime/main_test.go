package controllerruntime_test

import (
	"testing"

	"github.com/go-logr/logr"
	"go.uber.org/goleak"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
)

func TestMain(m *testing.M) {
	logf.SetLogger(logr.Discard())
	goleak.VerifyTestMain(m)
}
