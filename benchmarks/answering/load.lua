-- Requests from a file, a line each: METHOD PATH [BODY]; "{n}" in path or body is a number that no other request has.
-- The last line of output is one JSON document.
local lines, counter, start = {}, 0, 0
local read = {["Accept"] = "application/json, application/vnd.oci.image.manifest.v1+json"}
local write = {["Content-Type"] = "application/json"}

function init(args)
  for line in io.lines(args[1]) do lines[#lines + 1] = line end
  start = tonumber(args[2])
  math.randomseed(start)
end

function request()
  counter = counter + 1
  local number = string.format("%d", start + counter)
  local method, path, body = lines[math.random(#lines)]:match("^(%S+) (%S+) ?(.*)$")
  path, body = path:gsub("{n}", number), body:gsub("{n}", number)
  if body == "" then return wrk.format(method, path, read) end
  return wrk.format(method, path, write, body)
end

function done(summary, latency)
  local errors = summary.errors
  io.write(string.format(
    '{"requests": %d, "seconds": %.6f, "p50": %.6f, "p99": %.6f, "refused": %d, "broken": %d}\n',
    summary.requests, summary.duration / 1e6, latency:percentile(50) / 1e6, latency:percentile(99) / 1e6,
    errors.status, errors.connect + errors.read + errors.write + errors.timeout))
end
