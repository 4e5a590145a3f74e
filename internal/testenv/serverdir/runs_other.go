//go:build !unix

package serverdir

func runs(int) bool { return true }
