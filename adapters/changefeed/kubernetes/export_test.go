package kubernetes

// Decode is decode, for tests.
var Decode = decode
