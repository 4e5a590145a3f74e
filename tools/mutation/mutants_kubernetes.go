package main

// kubernetesMutants break the store on Leases and the managers of controller-runtime.
var kubernetesMutants = []mutant{
	{
		name:   "kubernetes/L1",
		breaks: "a heartbeat is not a compare-and-set",
		file:   "adapters/changefeed/kubernetes/record.go",
		edits:  []edit{{"UID: prev.uid, ResourceVersion: prev.resourceVersion, Annotations", "Annotations"}},
		tests:  "./adapters/changefeed/kubernetes -run ^TestStore$/^CompareAndSet$",
	},
	{
		name:   "kubernetes/L2",
		breaks: "a Lease that another program has changed is used",
		file:   "adapters/changefeed/kubernetes/record.go",
		edits:  []edit{{"if holder != r.Leader {", "if holder != r.Leader && false {"}},
		tests:  "./adapters/changefeed/kubernetes -run ^TestLease_OtherHolder$",
	},
	{
		name:   "kubernetes/L3",
		breaks: "the store continues to use a connection that has failed silently",
		file:   "adapters/changefeed/kubernetes/record.go",
		edits:  []edit{{"> silence:", "> silence && false:"}},
		tests:  "./adapters/changefeed/kubernetes -run ^TestStore_SilentConnection$",
	},
	{
		name:   "kubernetes/L4",
		breaks: "a feed ends with a watch that the API server has ended",
		file:   "adapters/changefeed/kubernetes/watch.go",
		edits:  []edit{{"time.Since(start) > minWatch", "time.Since(start) < 0"}},
		tests:  "./adapters/changefeed/kubernetes -run ^TestFeed_LongWatch$",
	},
	{
		name:   "kubernetes/L5",
		breaks: "the client repeats requests that the API server has rejected",
		file:   "adapters/changefeed/kubernetes/record.go",
		edits:  []edit{{".MaxRetries(0)", ""}},
		tests:  "./adapters/changefeed/kubernetes -run ^TestErrors$/^Throttled$",
	},
	{
		name:   "kubernetes/M1",
		breaks: "the controllers are not stopped when the leadership ends",
		file:   "adapters/controllerruntime/manager.go",
		edits:  []edit{{"		case <-ended:\n			m.cancelBase(", "		case <-ended:\n			_ = fmt.Sprint("}},
		tests:  "./adapters/controllerruntime -run ^TestManager_CutOff$",
	},
	{
		name:   "kubernetes/M2",
		breaks: "the candidate resigns while a controller still runs",
		file:   "adapters/controllerruntime/manager.go",
		edits:  []edit{{"if working || !m.waits || errors.Is(err, context.DeadlineExceeded) {", "if working && false {"}},
		tests:  "./adapters/controllerruntime -run ^TestManager_HungController$",
	},
	{
		name:   "kubernetes/M3",
		breaks: "the controllers start before the candidate leads",
		file:   "adapters/controllerruntime/manager.go",
		edits:  []edit{{"	select {\n	case <-l.manager.leads:\n		return l.Interface.Get(ctx)", "	select {\n	default:\n		return l.Interface.Get(ctx)"}, {"if err := l.manager.leadership.Load().Err(); err != nil {", "if false {\n		var err error"}},
		tests:  "./adapters/controllerruntime -run ^TestManager_Stop$",
	},
	{
		name:   "kubernetes/M4",
		breaks: "everything is stopped in turn, and not at once, when the leadership ends",
		file:   "adapters/controllerruntime/manager.go",
		edits:  []edit{{"options.BaseContext = func() context.Context { return m.base }", "options.BaseContext = func() context.Context { return context.WithoutCancel(m.base) }"}},
		tests:  "./adapters/controllerruntime -run ^TestManager_CutOff$",
	},
}
