-- Asks Tollgate about a request, before HAProxy lets it through. HAProxy 2.6 or newer, for its HTTP client.
--
--   http-request lua.tollgate http://127.0.0.1:8080/v1/forward-auth
--
-- A denied request is answered here. Of others these variables are set, for haproxy.cfg to go by:
--   txn.tollgate               `passes`, or `down` where no decision could be had
--   txn.tollgate_limit         RateLimit, if the limiter says it
--   txn.tollgate_limit_policy  RateLimit-Policy, likewise

-- Longer than the longest that a limit holds a request: `max_wait`, or the queue of a leaky bucket. A limiter that hangs is
-- waited for four times as long.
local TIMEOUT_MS = 2000

-- Of the connection to HAProxy, or of a body that the limiter does not get.
local NOT_HANDED_ON = {
	["connection"] = true,
	["content-length"] = true,
	["expect"] = true,
	["host"] = true,
	["keep-alive"] = true,
	["te"] = true,
	["transfer-encoding"] = true,
	["upgrade"] = true,
}

-- What the limiter decides by. A client must not choose its route, nor its address, so what it says of them is left out.
local function asked(txn)
	local headers = {}
	for name, values in pairs(txn.http:req_get_headers()) do
		if not (NOT_HANDED_ON[name] or name:find("^x%-forwarded%-") or name:find("^x%-original%-")) then
			headers[name] = values
		end
	end
	headers["x-forwarded-uri"] = { txn.sf:pathq() }
	headers["x-forwarded-method"] = { txn.sf:method() }
	headers["x-forwarded-host"] = { txn.sf:req_fhdr("host") }
	headers["x-forwarded-for"] = { txn.sf:src() }
	return headers
end

local function first(headers, name)
	local values = headers[name]
	return values and values[0]
end

local function tollgate(txn, url)
	local answer = core.httpclient():get({ url = url, headers = asked(txn), timeout = TIMEOUT_MS })
	local status = answer.status or 0
	if status == 429 then
		local reply = txn:reply({ status = 429, reason = "Too Many Requests", body = answer.body })
		for _, name in ipairs({ "content-type", "cache-control", "retry-after", "ratelimit", "ratelimit-policy" }) do
			local value = first(answer.headers, name)
			if value then
				reply:add_header(name, value)
			end
		end
		txn:done(reply)
	elseif status >= 200 and status < 300 then
		txn:set_var("txn.tollgate", "passes")
		txn:set_var("txn.tollgate_limit", first(answer.headers, "ratelimit"))
		txn:set_var("txn.tollgate_limit_policy", first(answer.headers, "ratelimit-policy"))
	else
		txn:set_var("txn.tollgate", "down")
	end
end

core.register_action("tollgate", { "http-req" }, tollgate, 1)
